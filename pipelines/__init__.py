"""The workflows: wiring only. What is done is in `sgpu`; here it is decided what is due."""

import warnings

import dagster as dg

# Checks on partitions are in preview; all that we use of them is that they run with their asset.
warnings.filterwarnings("ignore", category=dg.PreviewWarning)
