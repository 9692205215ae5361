"""What both servers share: property files, start and stop, control plane workers."""
