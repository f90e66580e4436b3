"""What a study file may say."""
