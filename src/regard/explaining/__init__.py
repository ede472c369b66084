"""Why a model said what it said: attention beside explanations that do not ask it; no task is known here."""
