"""The workflows: wiring only. What is done is in `sgpu`; here it is decided what is due."""
