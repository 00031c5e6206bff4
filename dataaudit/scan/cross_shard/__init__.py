"""Link steps: what meets across shards, by key: joins, samples for judges, a second pass over documents."""
