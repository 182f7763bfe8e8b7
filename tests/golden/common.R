# What the scripts share: exact JSON, tight fits, derivatives by the complex step.

# JSON with every double written to 17 significant digits, so that it is read back bit for bit
# (jsonlite stops at 15). Named lists become objects, matrices lists of rows, c() an array;
# one-element vectors are scalars unless wrapped in I().
to_json <- function(x, indent = "") {
  deeper <- paste0(indent, "  ")
  if (is.matrix(x)) {
    rows <- apply(x, 1, function(row) to_json(I(unname(row))))
    return(paste0("[\n", deeper, paste(rows, collapse = paste0(",\n", deeper)), "\n", indent, "]"))
  }
  if (is.list(x)) {
    items <- paste0(quoted(names(x)), ": ", vapply(x, to_json, "", indent = deeper))
    return(paste0("{\n", deeper, paste(items, collapse = paste0(",\n", deeper)), "\n", indent, "}"))
  }
  text <- if (is.character(x)) quoted(x) else if (is.logical(x)) tolower(x) else sprintf("%.17g", x)
  if (length(x) == 1 && !inherits(x, "AsIs")) text else paste0("[", paste(text, collapse = ", "), "]")
}
quoted <- function(text) paste0('"', gsub('"', '\\\\"', gsub("\\s+", " ", text)), '"')

write_golden <- function(file, cases, packages) {
  versions <- c(list(R = paste(R.version$major, R.version$minor, sep = ".")),
                lapply(setNames(nm = packages), function(p) as.character(packageVersion(p))))
  writeLines(to_json(list(versions = versions, cases = cases)), file)
  cat(file, ":", paste(names(versions), versions, collapse = ", "), "\n")
}

tight <- glm.control(epsilon = 1e-14, maxit = 100)

# glm() computes vcov() from the weights of the last iteration but one. Fitting again from the
# optimum makes that iteration the optimum itself.
tight_glm <- function(formula, family, data, ...) {
  fit <- glm(formula, family, data, control = tight, ...)
  again <- list(formula = formula, family = family, data = data, control = tight, start = coef(fit), ...)
  do.call(glm, again)
}

# Newton's method to the last digit, for the fitters whose own stopping rule is looser.
newton <- function(theta, score, information) {
  for (iteration in 1:30) theta <- theta + solve(information(theta), score(theta))
  theta
}

expit <- function(x) 1 / (1 + exp(-x))   # plogis() refuses the complex numbers that gradient() sends

# Im g(theta + i h) / h: exact to rounding, since nothing is subtracted.
gradient <- function(g, theta) {
  h <- 1e-30
  vapply(seq_along(theta), function(j) {
    moved <- as.complex(theta)
    moved[j] <- moved[j] + 1i * h
    Im(g(moved)) / h
  }, 0)
}

same <- function(a, b, tolerance) {
  gap <- max(abs(unname(a) - unname(b)) / pmax(abs(unname(b)), 1e-8))
  if (!is.finite(gap) || gap > tolerance) stop("two routes to one number differ by a factor 1 + ", gap)
}

standard_error <- function(gradient, covariance) sqrt(drop(gradient %*% covariance %*% gradient))

wald <- function(value, se, level) value + c(-1, 1) * qnorm((1 + level) / 2) * se
