# Answer one question by car.R: `Rscript answer.R question table.csv`; prints a JSON object.
# Rounds and repeats as in answer.py. `Rscript answer.R versions car sandwich`: versions.
ROUNDS <- 7
LEAST <- 0.05
MOST <- 50

versions <- function(packages) {
  found <- sapply(packages, function(p) as.character(packageVersion(p)), simplify = FALSE)
  c(list(R = paste(R.version$major, R.version$minor, sep = ".")), found)
}

seconds <- function() sum(proc.time()[c("user.self", "sys.self")])

timed <- function(fit, ask, data) {
  start <- seconds()
  fitted <- fit(data)
  between <- seconds()
  ask(fitted, data)
  c(between - start, seconds() - between)
}

one_round <- function(fit, ask, data, repeats) {
  rowMeans(replicate(repeats, timed(fit, ask, data)))
}

answered <- function(fit, ask, data) {
  found <- ask(fit(data), data)
  once <- sum(timed(fit, ask, data))
  repeats <- min(MOST, ceiling(LEAST / max(once, 1e-3)))
  rounds <- replicate(ROUNDS, one_round(fit, ask, data, repeats))
  both <- median(colSums(rounds))
  times <- list(ask = median(rounds[2, ]), both = both)
  list(value = found[[1]], spread = found[[2]], seconds = times)
}

arguments <- commandArgs(trailingOnly = TRUE)
here <- dirname(sub("--file=", "", grep("--file=", commandArgs(), value = TRUE)))
if (arguments[1] == "versions") {
  found <- versions(arguments[-1])
} else {
  source(file.path(here, "scripts", "car.R"))
  data <- read.csv(arguments[2])
  asked <- function(kind) get(paste0(kind, "_", arguments[1]))
  found <- suppressWarnings(suppressMessages(answered(asked("fit"), asked("ask"), data)))
}
cat("\n", jsonlite::toJSON(found, auto_unbox = TRUE, digits = NA), "\n", sep = "")
