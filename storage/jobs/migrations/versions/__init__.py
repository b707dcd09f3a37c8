"""The migrations, one in each module; ``down_revision`` in a module names the previous migration."""
