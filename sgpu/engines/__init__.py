"""Engines that sample answers: vLLM, transformers, any server that speaks OpenAI's protocol."""
