"""The effect of one client's expensive requests on other clients."""
