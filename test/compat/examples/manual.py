# servers:
# Without servers: what an agent prints first.
print(runtime.capability_summary())
