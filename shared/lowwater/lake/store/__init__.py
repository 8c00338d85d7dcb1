"""Where the files of a lake are: local directories and object stores."""
