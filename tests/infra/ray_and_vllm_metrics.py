"""Metrics of Ray and vLLM that the dashboard and the alerts use, by the names that Prometheus sees.

The names of Ray were seen at the agent of a Ray 2.60 with `ray[default]`, but for the two of GPUs, which
stand in its source; those of vLLM stand in the source of vLLM 0.32, counters with `_total` behind them.
"""

RAY_METRICS = frozenset(
    {
        "ray_actors",
        "ray_cluster_active_nodes",
        "ray_node_cpu_utilization",
        "ray_node_disk_free",
        "ray_node_disk_usage",
        "ray_node_gpus_utilization",
        "ray_node_gram_used",
        "ray_node_mem_total",
        "ray_node_mem_used",
        "ray_object_store_available_memory",
        "ray_object_store_used_memory",
        "ray_spill_manager_objects_bytes",
    }
)
VLLM_METRICS = frozenset(
    {
        "vllm:generation_tokens_total",
        "vllm:kv_cache_usage_perc",
        "vllm:num_preemptions_total",
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:prefix_cache_hits_total",
        "vllm:prefix_cache_queries_total",
        "vllm:prompt_tokens_total",
    }
)
