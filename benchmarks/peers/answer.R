# Answer questions by car.R: `Rscript answer.R folder-of-tables`; the commands are those of answer.py.
arguments <- commandArgs(trailingOnly = TRUE)
here <- dirname(sub("--file=", "", grep("--file=", commandArgs(), value = TRUE)))
source(file.path(here, "scripts", "car.R"))
TABLES <- c("villages", "doses", "villages", "rents", "events", "growth", "lifetimes")

prepared <- function(question) {
  list(
    fit = get(paste0("fit_", question)),
    ask = get(paste0("ask_", question)),
    data = read.csv(file.path(arguments[1], paste0(TABLES[as.integer(question)], ".csv")))
  )
}

versions <- function(packages) {
  found <- sapply(packages, function(p) as.character(packageVersion(p)), simplify = FALSE)
  c(list(R = paste(R.version$major, R.version$minor, sep = ".")), found)
}

answer <- function(words) {
  of <- prepared(words[1])
  found <- of$ask(of$fit(of$data), of$data)
  list(value = found[[1]], spread = found[[2]])
}

seconds <- function() sum(proc.time()[c("user.self", "sys.self")])

timed <- function(of) {
  start <- seconds()
  fitted <- of$fit(of$data)
  between <- seconds()
  of$ask(fitted, of$data)
  c(between - start, seconds() - between)
}

one_round <- function(words) {
  of <- prepared(words[1])
  parts <- rowMeans(replicate(as.integer(words[2]), timed(of)))
  list(fit = parts[1], ask = parts[2])
}

commands <- list(versions = versions, answer = answer, round = one_round)
input <- file("stdin", "r")
while (length(line <- readLines(input, 1)) > 0) {
  words <- strsplit(line, " ")[[1]]
  found <- suppressWarnings(suppressMessages(commands[[words[1]]](words[-1])))
  cat("\n", jsonlite::toJSON(found, auto_unbox = TRUE, digits = NA), "\n", sep = "")
  flush(stdout())
}
