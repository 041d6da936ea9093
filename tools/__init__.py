"""Tools that make the pages: pictures, the site, and the parts of the reference that are written from code."""
