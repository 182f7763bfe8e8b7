# Seven tasks of scientists with a likelihood of their own: estimates, standard errors, functions of them by the delta
# method, and likelihood-ratio limits by refits. Run in this directory: Rscript r.R

source("../common.R")
suppressMessages({library(survival); library(MASS); library(evd)})

LEVEL <- 0.95

# Derivatives by Richardson's extrapolation, in steps of a fraction of each parameter's own error.
grad <- function(f, theta) {
  size <- unit(f, theta)
  numDeriv::grad(function(u) f(theta + u * size), 0 * theta, method.args = list(eps = 0.05)) / size
}
hessian <- function(f, theta) {
  size <- unit(f, theta)
  numDeriv::hessian(function(u) f(theta + u * size), 0 * theta, method.args = list(eps = 0.1)) / outer(size, size)
}
unit <- function(f, theta) vapply(seq_along(theta), function(j) {
  h <- 1e-4 * max(abs(theta[j]), 1e-2); step <- replace(0 * theta, j, h)
  bend <- abs(f(theta + step) + f(theta - step) - 2 * f(theta)) / h^2
  if (bend * h^2 > 1e-13 * abs(f(theta))) min(1 / sqrt(bend), abs(theta[j]) / 2) else max(abs(theta[j]) / 10, 1e-3)
}, 0)

# Maximum of a log-likelihood, to rounding error: BFGS, then Newton's method with derivatives by Richardson's extrapolation.
maximum <- function(loglik, start) {
  found <- optim(start, loglik, method = "BFGS", control = list(fnscale = -1, maxit = 500, parscale = pmax(abs(start), 1e-3)))$par
  for (i in 1:4) found <- found - solve(hessian(loglik, found), grad(loglik, found))
  found
}

# Where twice the fall of the log-likelihood is the quantile. `theta_of(psi, rest)` writes psi in the place of a parameter.
limits <- function(loglik, theta, psi, se, theta_of, rest, quantile) {
  last <- rest   # the walk starts where it was
  top <- loglik(theta)
  excess <- function(value) {
    inner <- function(rest) loglik(theta_of(value, rest))
    last <<- maximum(inner, last)
    2 * (top - inner(last)) - quantile
  }
  end <- function(side) {
    far <- psi; last <<- rest
    while (excess(far) < 0) far <- far + side * se / 4
    uniroot(excess, sort(c(far - side * se / 4, far)), tol = 1e-10 * se)$root
  }
  c(end(-1), end(1))
}

# A task: `derived` are functions of theta; `intervals` has, for some of these or of the parameters, theta_of and the rest.
task <- function(note, data, loglik, start, derived, intervals, quantile = qchisq(LEVEL, 1), theta = maximum(loglik, start),
                 covariance = solve(-hessian(loglik, theta))) {
  names(theta) <- names(start)
  parameters <- lapply(setNames(seq_along(theta), names(theta)), function(j) function(theta) theta[[j]])
  functions <- c(parameters, derived)
  error <- function(g) standard_error(grad(function(t) g(setNames(t, names(theta))), theta), covariance)
  value <- lapply(functions, function(g) g(theta)); se <- lapply(functions, error)
  interval <- lapply(setNames(nm = names(intervals)), function(name) {
    other <- intervals[[name]]
    limits(function(t) loglik(unname(t)), theta, value[[name]], se[[name]], other$theta_of, other$rest(theta), quantile)
  })
  list(note = note, data = data, value = value, standard_error = se, interval = interval, loglik = loglik(unname(theta)))
}
swap <- function(theta_of, rest) list(theta_of = theta_of, rest = function(theta) unname(rest(unname(theta))))

# nls: Gauss-Newton to the last digit, the covariance of vcov(), t quantiles with the residual variance held as profile.nls does.
least_squares <- function(note, data, mean, start, coefficients, vcov, derived, intervals) {
  y <- data$y; residuals <- function(t) y - mean(t)
  theta <- unname(coefficients)
  size <- abs(theta)
  slope <- function(t) -numDeriv::jacobian(function(u) residuals(u * size), t / size) %*% diag(1 / size)
  for (i in 1:30) { J <- slope(theta); theta <- theta + solve(qr(J), residuals(theta)) }
  df <- length(y) - length(theta); s2 <- sum(residuals(theta)^2) / df
  same(theta / size, coefficients / size, 1e-4)
  covariance <- diag(size) %*% solve(crossprod(slope(theta) %*% diag(size))) %*% diag(size) * s2
  same(sqrt(diag(covariance)) / size, sqrt(diag(vcov)) / size, 1e-3)
  loglik <- function(t) -sum(residuals(t)^2) / (2 * s2)
  task(note, data, loglik, start, derived, intervals, qt((1 + LEVEL) / 2, df)^2, theta, covariance)
}

dose_response <- local({
  set.seed(4)
  dose <- rep(10^seq(-9.5, -5, by = 0.5), each = 3)
  curve <- function(t, x) t[1] + (t[2] - t[1]) / (1 + (t[3] / x)^t[4])
  y <- round(curve(c(4, 98, 2e-8, 1.1), dose) + rnorm(length(dose), sd = 6), 2)
  start <- c(bottom = 0, top = 100, EC50 = 3e-8, hill = 1)
  # doses in 100 nM to nls, whose numerical derivatives have no scales
  fit <- nls(y ~ curve(c(bottom, top, 1e-7 * EC50, hill), dose), start = list(bottom = 0, top = 100, EC50 = 0.3, hill = 1))
  unit <- c(1, 1, 1e-7, 1)
  least_squares("nls, four-parameter logistic; doses in molar. Limits: profile.nls by refits", list(dose = dose, y = y),
    function(t) curve(t, dose), start, coef(fit) * unit, vcov(fit) * outer(unit, unit), list(EC90 = function(t) t[["EC50"]] * 9^(1 / t[["hill"]])), list(
      EC50 = swap(function(psi, r) c(r[1], r[2], psi, r[3]), function(t) t[c(1, 2, 4)]),
      EC90 = swap(function(psi, r) c(r[1], r[2], psi / 9^(1 / r[3]), r[3]), function(t) t[c(1, 2, 4)])))
})

michaelis_menten <- local({
  frame <- subset(Puromycin, state == "treated")
  fit <- nls(rate ~ Vm * conc / (K + conc), frame, start = list(Vm = 200, K = 0.05), control = nls.control(tol = 1e-6))
  made <- least_squares("nls(rate ~ Vm * conc / (K + conc)), datasets::Puromycin, treated", list(conc = frame$conc, y = frame$rate),
    function(t) t[1] * frame$conc / (t[2] + frame$conc), c(Vm = 200, K = 0.05), coef(fit), vcov(fit),
    list(efficiency = function(t) t[["Vm"]] / t[["K"]]), list(
      Vm = swap(function(psi, r) c(psi, r), function(t) t[2]),
      K = swap(function(psi, r) c(r, psi), function(t) t[1]),
      efficiency = swap(function(psi, r) c(psi * r, r), function(t) t[2])))
  same(unlist(made$interval[c("Vm", "K")]), c(t(suppressMessages(confint(fit)))), 2e-3)
  made
})

# Lebreton et al. (1992): releases and first recaptures of European dippers, as MARK has it: 0.5602 (0.0251), 0.9026 (0.0286).
dippers <- local({
  released <- c(22, 60, 78, 80, 88, 98)
  again <- rbind(c(11, 2, 0, 0, 0, 0), c(0, 24, 1, 0, 0, 0), c(0, 0, 34, 2, 0, 0),
                 c(0, 0, 0, 45, 1, 2), c(0, 0, 0, 0, 51, 0), c(0, 0, 0, 0, 0, 52))
  loglik <- function(t) {
    if (any(t <= 0 | t >= 1)) return(-1e10)
    cell <- outer(1:6, 1:6, function(i, j) ifelse(j >= i, t[1] * t[2] * (t[1] * (1 - t[2]))^(j - i), 0))
    sum(again[again > 0] * log(cell[again > 0])) + sum((released - rowSums(again)) * log(1 - rowSums(cell)))
  }
  made <- task("Cormack-Jolly-Seber with constant survival and recapture; European dippers (Lebreton et al. 1992), m-array",
    list(released = released, again = again), loglik, c(survival = 0.5, recapture = 0.8),
    list(expectancy = function(t) -1 / log(t[["survival"]])), list(
      survival = swap(function(psi, r) c(psi, r), function(t) t[2]),
      recapture = swap(function(psi, r) c(r, psi), function(t) t[1]),
      expectancy = swap(function(psi, r) c(exp(-1 / psi), r), function(t) t[2])))
  same(round(unlist(c(made$value[1:2], made$standard_error[1:2])), 4), c(0.5602, 0.9026, 0.0251, 0.0286), 1e-8)
  made
})

motors_b10 <- local({
  x <- 1000 / (motors$temp + 273.2); hot <- 1000 / (130 + 273.2)
  fit <- survreg(Surv(time, cens) ~ x, data.frame(motors, x), dist = "weibull", control = survreg.control(rel.tolerance = 1e-12))
  z <- function(t) (log(motors$time) - t[1] - t[2] * x) / exp(t[3])
  loglik <- function(t) sum(motors$cens * (z(t) - t[3] - log(motors$time)) - exp(z(t)))
  lowest <- log(-log(0.9))
  made <- task("survreg(Surv(time, cens) ~ 1000 / (temp + 273.2)), MASS::motors; B10 is the age that one in ten at 130 C does not reach",
    list(time = motors$time, failed = motors$cens, temp = motors$temp), loglik,
    setNames(c(coef(fit), log(fit$scale)), c("a", "b", "log_scale")),
    list(B10 = function(t) exp(t[["a"]] + t[["b"]] * hot + exp(t[["log_scale"]]) * lowest),
         shape = function(t) exp(-t[["log_scale"]])), list(
      B10 = swap(function(psi, r) c(log(psi) - r[1] * hot - exp(r[2]) * lowest, r), function(t) t[2:3]),
      shape = swap(function(psi, r) c(r, -log(psi)), function(t) t[1:2])))
  same(unlist(made$value[1:3]), c(coef(fit), log(fit$scale)), 1e-6)
  same(unlist(made$standard_error[1:3]), sqrt(diag(vcov(fit))), 1e-5)
  told <- predict(fit, data.frame(x = hot), type = "quantile", p = 0.1, se.fit = TRUE)
  same(c(made$value$B10, made$standard_error$B10), c(told$fit, told$se.fit), 1e-5)
  made
})

port_pirie <- local({
  y <- as.numeric(portpirie)
  loglik <- function(t) {
    z <- 1 + t[3] * (y - t[1]) / t[2]
    if (t[2] <= 0 || any(z <= 0)) return(-1e10)
    sum(-log(t[2]) - (1 + 1 / t[3]) * log(z) - z^(-1 / t[3]))
  }
  growth <- function(shape) ((-log(0.99))^-shape - 1) / shape
  fit <- fgev(y, prob = 0.01)
  made <- task("evd::fgev(portpirie): yearly maxima of the sea level (Coles 2001); `level` is exceeded once in 100 years",
    list(y = y), loglik, c(loc = 3.87, scale = 0.198, shape = -0.05),
    list(level = function(t) t[["loc"]] + t[["scale"]] * growth(t[["shape"]])), list(
      shape = swap(function(psi, r) c(r, psi), function(t) t[1:2]),
      level = swap(function(psi, r) c(psi - r[1] * growth(r[2]), r), function(t) t[2:3])))
  same(unlist(made$value[c("level", "scale", "shape")]), fitted(fit), 1e-2)
  same(unlist(made$standard_error[c("level", "scale", "shape")]), std.errors(fit), 2e-2)
  same(made$interval$level, confint(profile(fit, "quantile", mesh = 0.002))[1, ], 1e-3)
  made
})

hormone <- local({
  y <- as.numeric(lh); n <- length(y)
  fit <- arima(lh, order = c(1, 0, 0), method = "ML", optim.control = list(reltol = 1e-14))
  loglik <- function(t) {
    if (abs(t[1]) >= 1) return(-1e10)
    r <- y - t[2]; v <- exp(t[3])
    innovation <- r[-1] - t[1] * r[-n]
    -n / 2 * log(2 * pi * v) + log(1 - t[1]^2) / 2 - (r[1]^2 * (1 - t[1]^2) + sum(innovation^2)) / (2 * v)
  }
  made <- task("arima(lh, c(1, 0, 0)): exact likelihood; log_var is of the innovations", list(y = y), loglik,
    c(phi = 0.5, mean = 2.4, log_var = -1.6),
    list(memory = function(t) -1 / log(t[["phi"]]), variance = function(t) exp(t[["log_var"]]) / (1 - t[["phi"]]^2)), list(
      phi = swap(function(psi, r) c(psi, r), function(t) t[2:3]),
      memory = swap(function(psi, r) c(exp(-1 / psi), r), function(t) t[2:3])))
  same(unlist(made$value[1:2]), coef(fit), 1e-5)
  same(unlist(made$standard_error[1:2]), sqrt(diag(fit$var.coef)), 1e-3)
  same(made$loglik, fit$loglik, 1e-8)
  made
})

nile <- local({
  y <- as.numeric(Nile); diffuse <- 1e6 * var(y)
  loglik <- function(t) {
    level <- exp(t[1]); noise <- exp(t[2]); a <- y[1]; P <- diffuse; total <- 0
    for (value in y) {
      F <- P + noise; error <- value - a
      total <- total - (log(2 * pi * F) + error^2 / F) / 2
      a <- a + P / F * error; P <- P * noise / F + level
    }
    total
  }
  fit <- StructTS(Nile, "level", optim.control = list(factr = 10))
  made <- task("StructTS(Nile, 'level'): Kalman filter of a local level, the first level diffuse with variance 1e6 var(y)",
    list(y = y), loglik, c(log_level = log(1500), log_noise = log(15000)),
    list(level = function(t) exp(t[["log_level"]]), noise = function(t) exp(t[["log_noise"]]),
         ratio = function(t) exp(t[["log_level"]] - t[["log_noise"]]),
         log_ratio = function(t) t[["log_level"]] - t[["log_noise"]]), list(
      noise = swap(function(psi, r) c(r, log(psi)), function(t) t[1]),
      log_ratio = swap(function(psi, r) c(psi + r, r), function(t) t[2])))
  made$interval$ratio <- exp(made$interval$log_ratio)
  same(unlist(made$value[c("level", "noise")]), fit$coef, 2e-3)
  made
})

write_golden("r.json", list(
  dose_response = dose_response, michaelis_menten = michaelis_menten, dippers = dippers, motors_b10 = motors_b10,
  port_pirie = port_pirie, hormone = hormone, nile = nile), c("survival", "MASS", "evd", "numDeriv"))
