"""Pages, tables and figures of studies, of transfer studies and of days."""
