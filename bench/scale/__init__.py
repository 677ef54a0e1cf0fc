"""A simulation of many replicas, and the measurements that it is checked against."""
