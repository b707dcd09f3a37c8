"""Runner processes, which solve jobs, and the supervisor that keeps them alive."""
