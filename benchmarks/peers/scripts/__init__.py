"""One script for each library: ``fit_q`` and ``ask_q`` for the questions that it answers."""
