"""Work over time: who writes which context, turns, tools, budgets, and the events that tell of them. Touches what is
handed in: the records, a model, a clock; nothing here goes around `agentd.records`.
"""
