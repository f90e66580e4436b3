"""The study of `sgpu_plus` as docs/studies/sgpu_plus.md registers it: `make study-plus`."""
