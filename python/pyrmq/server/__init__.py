"""What both servers share: property files, start and stop, workers of the control plane."""
