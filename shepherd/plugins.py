"""What installed packages add to Shepherd, by their entry points; read only when it is needed."""
