"""What this call is: flags, settings, exec info, kubeconfig and bootstrap credential."""
