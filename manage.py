#!/usr/bin/env python
"""Ergon's command line."""

from ergon_site.__main__ import main

if __name__ == "__main__":
    main()
