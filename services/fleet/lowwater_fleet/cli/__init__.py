"""The command line `lowwater`, a module for each group of commands."""
