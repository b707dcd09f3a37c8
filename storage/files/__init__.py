"""Files and folders that survive a crash, and locks between processes."""
