"""Linear solvers and maximizers: functions of arrays, no statistics and no frameworks."""
