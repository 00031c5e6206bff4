"""Token files as trainers read them: Megatron's ``.bin``/``.idx``, flat ones; the map of whose tokens they hold."""
