"""Capture with LogMiner: sessions over all threads, the rows of V$LOGMNR_CONTENTS, and the parser of their SQL."""
