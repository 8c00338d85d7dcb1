"""The ordered topic and the lake, compared with the sources' own histories."""
