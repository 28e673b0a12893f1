"""What vLLM and SGLang are: launch plans, log phases and metric arithmetic, by version."""
