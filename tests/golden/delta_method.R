# Delta-method standard errors of nonlinear functions of nine published models.
# Run in this directory: Rscript delta_method.R

source("common.R")
suppressMessages({library(car); library(MASS); library(survival)})

# A case: what maximizes what, and the covariances of theta, by kind.
# `loglik` (or `residuals`) and the evaluations' formulas are Python in the names of numpy and
# scipy.special, with theta and the case's data as arrays; indices start at 0.
case <- function(model, data, theta, covariance, r_reports, note, evaluations, ...) {
  stopifnot(r_reports %in% names(covariance))
  theta <- unname(theta)
  covariance <- lapply(covariance, unname)
  list(model = model, note = note, data = data, ..., theta = theta,
       r_reports = r_reports, covariance = covariance,
       evaluations = lapply(evaluations, function(e) e(theta, covariance)))
}

# A closed formula of theta, which is R and Python at once: car::deltaMethod does the work.
closed <- function(formula) function(theta, covariance) {
  names(theta) <- paste0("b", seq_along(theta) - 1)
  g <- gsub("theta\\[(\\d+)\\]", "b\\1", formula)
  rows <- lapply(covariance, function(V) {
    dimnames(V) <- list(names(theta), names(theta))
    car::deltaMethod(theta, g, vcov. = V)
  })
  value <- rows[[1]]$Estimate
  derivative <- attr(deriv(parse(text = g), names(theta), function.arg = names(theta)) |>
                       do.call(as.list(theta)), "gradient")
  result(formula, "car::deltaMethod", value, drop(derivative), lapply(rows, function(row) row$SE))
}

# A formula over the sample: g in R, its gradient exact, and sqrt(g' V g).
by_hand <- function(formula, g, derivative = function(theta) gradient(g, theta)) function(theta, covariance) {
  slope <- derivative(theta)
  same(slope, numDeriv::grad(function(t) Re(g(t)), theta), 1e-6)
  result(formula, "by hand", Re(g(theta)), slope, lapply(covariance, function(V) standard_error(slope, V)))
}

result <- function(formula, source, value, gradient, se) {
  list(formula = formula, source = source, value = value, gradient = unname(gradient), standard_error = se,
       wald_95 = lapply(se, function(s) wald(value, s, 0.95)))
}

set_to <- function(X, column, value) { X[, column] <- value; X }

# --- Binary outcomes: low birth weight (Hosmer and Lemeshow) ------------------------------------

births <- transform(birthwt, race2 = +(race == 2), race3 = +(race == 3))
birth_formula <- low ~ age + lwt + race2 + race3 + smoke + ht + ui
x0 <- c(1, 25, 130, 0, 1, 1, 0, 0)   # 25 years, 130 pounds, race 3, smoker

logit <- local({
  fit <- tight_glm(birth_formula, binomial, births)
  X <- unname(model.matrix(fit))
  case(
    model = "glm(low ~ age + lwt + race2 + race3 + smoke + ht + ui, binomial), MASS::birthwt",
    note = "Canonical link: observed and expected information coincide.",
    data = list(y = births$low, X = X, x0 = x0),
    loglik = "y * (X @ theta) - logaddexp(0, X @ theta)", loglik_sum = as.numeric(logLik(fit)),
    theta_names = names(coef(fit)), theta = coef(fit),
    covariance = list(observed = vcov(fit)), r_reports = "observed",
    evaluations = list(
      odds_ratio_smoke = closed("exp(theta[5])"),
      trade_off_weight_for_smoke = closed("-theta[5] / theta[2]"),
      probability_at_x0 = by_hand("expit(x0 @ theta)", function(t) expit(sum(x0 * t))),
      average_effect_of_smoke = by_hand(
        "mean(expit(X @ theta + (1 - X[:, 5]) * theta[5]) - expit(X @ theta - X[:, 5] * theta[5]))",
        function(t) mean(expit(set_to(X, 6, 1) %*% t) - expit(set_to(X, 6, 0) %*% t))),
      average_slope_of_lwt = by_hand(
        "theta[2] * mean(expit(X @ theta) * (1 - expit(X @ theta)))",
        function(t) t[3] * mean(expit(X %*% t) * (1 - expit(X %*% t)))),
      relative_risk_of_smoke = by_hand(
        "mean(expit(X @ theta + (1 - X[:, 5]) * theta[5])) / mean(expit(X @ theta - X[:, 5] * theta[5]))",
        function(t) mean(expit(set_to(X, 6, 1) %*% t)) / mean(expit(set_to(X, 6, 0) %*% t)))))
})

probit <- local({
  fit <- tight_glm(birth_formula, binomial("probit"), births)
  X <- unname(model.matrix(fit))
  q <- 2 * births$low - 1
  mills <- function(t) q * exp(dnorm(X %*% t, log = TRUE) - pnorm(q * (X %*% t), log.p = TRUE))
  score <- function(t) drop(crossprod(X, mills(t)))
  information <- function(t) crossprod(X, X * drop(mills(t) * (mills(t) + X %*% t)))
  expected <- function(t) {
    p <- drop(pnorm(X %*% t))
    crossprod(X, X * drop(dnorm(X %*% t))^2 / (p * (1 - p)))
  }
  theta <- newton(coef(fit), score, information)
  same(theta, coef(fit), 1e-6); same(solve(expected(theta)), vcov(fit), 1e-6)
  X1 <- set_to(X, 6, 1); X0 <- set_to(X, 6, 0)
  case(
    model = "glm(low ~ age + lwt + race2 + race3 + smoke + ht + ui, binomial(\"probit\")), MASS::birthwt",
    note = "Not the canonical link: R's vcov() is the inverse of the expected information, the inverse of
            minus the Hessian of the log-likelihood is `observed`.",
    data = list(y = births$low, X = X, x0 = x0),
    loglik = "log_ndtr((2 * y - 1) * (X @ theta))", loglik_sum = as.numeric(logLik(fit)),
    theta_names = names(coef(fit)), theta = theta,
    covariance = list(observed = solve(information(theta)), expected = solve(expected(theta))),
    r_reports = "expected",
    evaluations = list(
      trade_off_weight_for_smoke = closed("-theta[5] / theta[2]"),
      probability_at_x0 = by_hand("ndtr(x0 @ theta)", function(t) pnorm(sum(x0 * t)),
        function(t) dnorm(sum(x0 * t)) * x0),
      average_effect_of_smoke = by_hand(
        "mean(ndtr(X @ theta + (1 - X[:, 5]) * theta[5]) - ndtr(X @ theta - X[:, 5] * theta[5]))",
        function(t) mean(pnorm(X1 %*% t) - pnorm(X0 %*% t)),
        function(t) drop(crossprod(X1, dnorm(X1 %*% t)) - crossprod(X0, dnorm(X0 %*% t))) / nrow(X))))
})

# --- Counts ---------------------------------------------------------------------------------------

poisson_breaks <- local({
  fit <- tight_glm(breaks ~ wool * tension, poisson, warpbreaks)
  X <- unname(model.matrix(fit))
  case(
    model = "glm(breaks ~ wool * tension, poisson), datasets::warpbreaks",
    note = "Canonical link: observed and expected information coincide.",
    data = list(y = warpbreaks$breaks, X = X),
    loglik = "y * (X @ theta) - exp(X @ theta) - gammaln(y + 1)", loglik_sum = as.numeric(logLik(fit)),
    theta_names = names(coef(fit)), theta = coef(fit),
    covariance = list(observed = vcov(fit)), r_reports = "observed",
    evaluations = list(
      rate_ratio_wool_at_low_tension = closed("exp(theta[1])"),
      rate_wool_b_at_high_tension = closed("exp(theta[0] + theta[1] + theta[3] + theta[5])"),
      ratio_of_coefficients = closed("theta[3] / theta[2]"),
      probability_of_ten_or_fewer_b_high = by_hand(
        "gammaincc(11, exp(theta[0] + theta[1] + theta[3] + theta[5]))",
        function(t) ppois(10, exp(sum(c(1, 1, 0, 1, 0, 1) * t))),
        function(t) {
          x <- c(1, 1, 0, 1, 0, 1)
          -dpois(10, exp(sum(x * t))) * exp(sum(x * t)) * x
        }),
      average_effect_of_wool = by_hand(
        "mean(exp(X @ theta + (1 - X[:, 1]) * theta[1] + (X[:, 2] - X[:, 4]) * theta[4] + (X[:, 3] - X[:, 5]) * theta[5]) - exp(X @ theta - X[:, 1] * theta[1] - X[:, 4] * theta[4] - X[:, 5] * theta[5]))",
        function(t) {
          X1 <- X; X1[, 2] <- 1; X1[, 5:6] <- X[, 3:4]
          X0 <- X; X0[, c(2, 5, 6)] <- 0
          mean(exp(X1 %*% t) - exp(X0 %*% t))
        })))
})

negative_binomial <- local({
  fit <- suppressWarnings(glm.nb(Days ~ Eth + Sex + Age + Lrn, quine, control = glm.control(epsilon = 1e-12, maxit = 100)))
  X <- unname(model.matrix(fit)); y <- quine$Days; p <- ncol(X)
  mu <- function(t) drop(exp(X %*% t[1:p]))
  score <- function(t) {
    k <- exp(t[p + 1]); m <- mu(t)
    c(crossprod(X, (y - m) * k / (m + k)),
      k * sum(digamma(y + k) - digamma(k) + log(k) + 1 - log(m + k) - (y + k) / (m + k)))
  }
  information <- function(t) {
    k <- exp(t[p + 1]); m <- mu(t)
    cross <- -k * crossprod(X, (y - m) * m / (m + k)^2)
    curvature <- sum(trigamma(y + k) - trigamma(k) + 1 / k - 2 / (m + k) + (y + k) / (m + k)^2)
    rbind(cbind(crossprod(X, X * k * m * (y + k) / (m + k)^2), cross),
          c(cross, -k^2 * curvature - score(t)[p + 1]))
  }
  blockwise <- function(t) {
    k <- exp(t[p + 1]); m <- mu(t)
    block <- information(t); block[1:p, p + 1] <- block[p + 1, 1:p] <- 0
    block[1:p, 1:p] <- crossprod(X, X * k * m / (m + k)); block
  }
  theta <- newton(c(coef(fit), log(fit$theta)), score, information)
  same(theta, c(coef(fit), log(fit$theta)), 1e-5)
  V <- solve(blockwise(theta))
  same(V[1:p, 1:p], vcov(fit), 1e-5); same(exp(theta[p + 1]) * sqrt(V[p + 1, p + 1]), fit$SE.theta, 1e-5)
  same(information(theta), numDeriv::jacobian(function(t) -score(t), theta) |> (\(H) (H + t(H)) / 2)(), 1e-5)
  x0 <- c(1, 1, 1, 0, 1, 0, 0)
  case(
    model = "MASS::glm.nb(Days ~ Eth + Sex + Age + Lrn), MASS::quine (Venables and Ripley)",
    note = "theta is the coefficients and, last, the logarithm of the size k: variance mu + mu^2 / k.
            `observed` is the inverse of minus the Hessian of the joint log-likelihood. `expected` is what R
            reports: coefficients by the expected information with k known, k by its own observed
            curvature (SE.theta), and no covariance between the two.",
    data = list(y = y, X = X, x0 = x0),
    loglik = "gammaln(y + exp(theta[7])) - gammaln(exp(theta[7])) - gammaln(y + 1) + exp(theta[7]) * theta[7] + y * (X @ theta[:7]) - (y + exp(theta[7])) * log(exp(X @ theta[:7]) + exp(theta[7]))",
    loglik_sum = sum(dnbinom(y, size = exp(theta[p + 1]), mu = mu(theta), log = TRUE)),
    theta_names = c(names(coef(fit)), "log(k)"), theta = theta,
    covariance = list(observed = solve(information(theta)), expected = V), r_reports = "expected",
    evaluations = list(
      size = closed("exp(theta[7])"),
      rate_ratio_eth = closed("exp(theta[1])"),
      ratio_of_coefficients = closed("theta[4] / theta[1]"),
      mean_at_x0 = closed("exp(theta[0] + theta[1] + theta[2] + theta[4])"),
      variance_at_x0 = closed("exp(theta[0] + theta[1] + theta[2] + theta[4]) + exp(2 * (theta[0] + theta[1] + theta[2] + theta[4]) - theta[7])"),
      probability_of_zero_at_x0 = by_hand(
        "(1 + exp(x0 @ theta[:7] - theta[7])) ** -exp(theta[7])",
        function(t) exp(-exp(t[8]) * log(1 + exp(sum(x0 * t[1:7]) - t[8])))),
      average_effect_of_eth = by_hand(
        "mean(exp(X @ theta[:7] + (1 - X[:, 1]) * theta[1]) - exp(X @ theta[:7] - X[:, 1] * theta[1]))",
        function(t) mean(exp(set_to(X, 2, 1) %*% t[1:7]) - exp(set_to(X, 2, 0) %*% t[1:7])))))
})

# --- Positive outcomes ------------------------------------------------------------------------------

gamma_clotting <- local({   # McCullagh and Nelder (1989, p. 300), as in help(glm); a log link here
  seconds <- c(118, 58, 42, 35, 27, 25, 21, 19, 18, 69, 35, 26, 21, 18, 16, 13, 12, 12)
  plasma <- rep(c(5, 10, 15, 20, 30, 40, 60, 80, 100), 2)
  frame <- data.frame(y = seconds, log_u = log(plasma), lot2 = rep(0:1, each = 9))
  fit <- tight_glm(y ~ log_u + lot2, Gamma("log"), frame)
  X <- unname(model.matrix(fit)); y <- seconds
  ratio <- function(t) drop(y * exp(-X %*% t))   # y / mu
  beta <- newton(coef(fit), function(t) drop(crossprod(X, ratio(t) - 1)), function(t) crossprod(X, X * ratio(t)))
  same(beta, coef(fit), 1e-6)
  spread <- mean(log(ratio(beta)) - ratio(beta) + 1)
  log_shape <- newton(log(-0.5 / spread), function(s) length(y) * exp(s) * (s - digamma(exp(s)) + spread),
                      function(s) length(y) * exp(s) * (exp(s) * trigamma(exp(s)) - 1 - (s - digamma(exp(s)) + spread)))
  shape <- exp(log_shape)
  same(shape, gamma.shape(fit, it.lim = 100, eps.max = 1e-9)$alpha, 1e-6)
  with_shape <- function(block) {   # the mixed derivatives, sum of x (y / mu - 1), are zero at the maximum
    V <- matrix(0, 4, 4)
    V[1:3, 1:3] <- solve(shape * block)
    V[4, 4] <- 1 / (length(y) * shape * (shape * trigamma(shape) - 1))
    V
  }
  expected <- with_shape(crossprod(X))
  same(expected[1:3, 1:3], vcov(fit, dispersion = 1 / shape), 1e-6)
  case(
    model = "glm(y ~ log_u + lot2, Gamma(\"log\")) and MASS::gamma.shape, clotting times of both lots of help(glm)",
    note = "theta is the coefficients and, last, the logarithm of the shape a: mean mu, variance mu^2 / a. Not the
            canonical link. `expected` is vcov(fit, dispersion = 1 / a) with the maximum-likelihood shape (R's default dispersion is Pearson's instead).",
    data = list(y = y, X = X),
    loglik = "exp(theta[3]) * (theta[3] - X @ theta[:3] - y * exp(-X @ theta[:3])) + (exp(theta[3]) - 1) * log(y) - gammaln(exp(theta[3]))",
    loglik_sum = sum(dgamma(y, shape, rate = shape / (y / ratio(beta)), log = TRUE)),
    theta_names = c(names(coef(fit)), "log(shape)"), theta = c(beta, log_shape),
    covariance = list(observed = with_shape(crossprod(X, X * ratio(beta))), expected = expected),
    r_reports = "expected",
    evaluations = list(
      plasma_for_thirty_seconds = closed("exp((log(30) - theta[0]) / theta[1])"),
      ratio_of_lots = closed("exp(theta[2])"),
      mean_at_25_lot1 = closed("exp(theta[0] + theta[1] * log(25))"),
      standard_deviation_at_25_lot1 = closed("exp(theta[0] + theta[1] * log(25) - theta[3] / 2)"),
      average_effect_of_lot = by_hand(
        "mean(exp(X @ theta[:3] + (1 - X[:, 2]) * theta[2]) - exp(X @ theta[:3] - X[:, 2] * theta[2]))",
        function(t) mean(exp(set_to(X, 3, 1) %*% t[1:3]) - exp(set_to(X, 3, 0) %*% t[1:3])))))
})

weibull <- local({
  fit <- survreg(Surv(futime, fustat) ~ age + rx, ovarian, dist = "weibull",
                 control = survreg.control(rel.tolerance = 1e-13, maxiter = 100))
  X <- unname(model.matrix(fit)); d <- ovarian$fustat
  z <- function(t) drop(log(ovarian$futime) - X %*% t[1:3]) / exp(t[4])
  score <- function(t) {
    u <- exp(z(t)) - d
    c(crossprod(X, u) / exp(t[4]), sum(u * z(t) - d))
  }
  information <- function(t) {
    u <- exp(z(t)) - d; W <- cbind(X / exp(t[4]), z(t))
    tail <- c(crossprod(X, u) / exp(t[4]), sum(u * z(t)))
    H <- crossprod(W, W * exp(z(t)))
    H[4, ] <- H[4, ] + tail; H[1:3, 4] <- H[1:3, 4] + tail[1:3]; H
  }
  theta <- newton(c(coef(fit), log(fit$scale)), score, information)
  V <- solve(information(theta))
  same(theta, c(coef(fit), log(fit$scale)), 1e-8); same(V, vcov(fit), 1e-6)
  x0 <- c(1, 50, 2)
  case(
    model = "survival::survreg(Surv(futime, fustat) ~ age + rx, dist = \"weibull\"), survival::ovarian",
    note = "log T = X beta + sigma W with W the minimum extreme value law; right censored where status is 0; theta is
            beta and, last, log(sigma). R inverts the observed information too.",
    data = list(t = ovarian$futime, status = d, X = X, x0 = x0),
    loglik = "status * ((log(t) - X @ theta[:3]) / exp(theta[3]) - theta[3] - log(t)) - exp((log(t) - X @ theta[:3]) / exp(theta[3]))",
    loglik_sum = fit$loglik[2],
    theta_names = c(names(coef(fit)), "log(scale)"), theta = theta,
    covariance = list(observed = V), r_reports = "observed",
    evaluations = list(
      scale = closed("exp(theta[3])"),
      hazard_ratio_rx = closed("exp(-theta[2] / exp(theta[3]))"),
      median_at_x0 = closed("exp(theta[0] + 50 * theta[1] + 2 * theta[2]) * log(2) ** exp(theta[3])"),
      survival_to_500_at_x0 = closed("exp(-exp((log(500) - theta[0] - 50 * theta[1] - 2 * theta[2]) / exp(theta[3])))"),
      years_of_age_worth_the_treatment = closed("-theta[2] / theta[1]"),
      average_effect_on_survival_to_500 = by_hand(
        "mean(exp(-exp((log(500) - X @ theta[:3] - (2 - X[:, 2]) * theta[2]) / exp(theta[3]))) - exp(-exp((log(500) - X @ theta[:3] - (1 - X[:, 2]) * theta[2]) / exp(theta[3]))))",
        function(t) {
          survival <- function(rx) exp(-exp((log(500) - set_to(X, 3, rx) %*% t[1:3]) / exp(t[4])))
          mean(survival(2) - survival(1))
        })))
})

# --- Least squares: the variance has two conventions ------------------------------------------------

linear <- local({
  fit <- lm(mpg ~ hp + I(hp^2) + wt, mtcars)
  X <- unname(model.matrix(fit)); n <- nrow(X); df <- df.residual(fit)
  case(
    model = "lm(mpg ~ hp + I(hp^2) + wt), datasets::mtcars",
    note = "theta is the coefficients alone. `unbiased` divides the residual sum of squares by n - 4, as R does, `mle` by n.
            loglik_sum is at the maximum-likelihood variance.",
    data = list(y = mtcars$mpg, X = X),
    residuals = "y - X @ theta", residual_sum_of_squares = deviance(fit), loglik_sum = as.numeric(logLik(fit)),
    theta_names = names(coef(fit)), theta = coef(fit),
    covariance = list(unbiased = vcov(fit), mle = vcov(fit) * df / n), r_reports = "unbiased",
    evaluations = list(
      horsepower_at_the_turn = closed("-theta[1] / (2 * theta[2])"),
      ratio_of_coefficients = closed("theta[3] / theta[1]"),
      gallons_per_100_miles_at_150_hp_3_tons = closed("100 / (theta[0] + 150 * theta[1] + 22500 * theta[2] + 3 * theta[3])"),
      average_gallons_per_100_miles = by_hand(
        "mean(100 / (X @ theta))", function(t) mean(100 / (X %*% t)))))
})

michaelis_menten <- local({
  treated <- subset(Puromycin, state == "treated")
  fit <- nls(rate ~ Vm * conc / (K + conc), treated, start = c(Vm = 200, K = 0.05),
             control = nls.control(tol = 1e-8, maxiter = 200, nDcentral = TRUE))
  c0 <- treated$conc; y <- treated$rate; n <- length(y)
  mean_at <- function(t) t[1] * c0 / (t[2] + c0)
  J <- function(t) cbind(c0 / (t[2] + c0), -t[1] * c0 / (t[2] + c0)^2)
  score <- function(t) drop(crossprod(J(t), y - mean_at(t)))
  information <- function(t) {
    r <- y - mean_at(t)
    cross <- sum(r * c0 / (t[2] + c0)^2)
    crossprod(J(t)) - matrix(c(0, -cross, -cross, sum(r * 2 * t[1] * c0 / (t[2] + c0)^3)), 2)
  }
  theta <- newton(coef(fit), score, information)
  rss <- sum((y - mean_at(theta))^2)
  same(theta, coef(fit), 1e-7); same(rss / (n - 2) * solve(crossprod(J(theta))), vcov(fit), 1e-6)
  same(information(theta), numDeriv::jacobian(function(t) -score(t), theta), 1e-6)
  kinds <- list(expected_unbiased = rss / (n - 2) * solve(crossprod(J(theta))),
                observed_unbiased = rss / (n - 2) * solve(information(theta)),
                expected_mle = rss / n * solve(crossprod(J(theta))), observed_mle = rss / n * solve(information(theta)))
  case(
    model = "nls(rate ~ Vm * conc / (K + conc)), datasets::Puromycin, treated cells (Bates and Watts)",
    note = "theta is (Vm, K). `expected` is the Gauss-Newton matrix J'J, as in R's vcov(); `observed` the whole Hessian of
            the sum of squares. `unbiased` divides the residual sum of squares by n - 2, as R does, `mle` by n. loglik_sum is at
            the maximum-likelihood variance.",
    data = list(y = y, conc = c0),
    residuals = "y - theta[0] * conc / (theta[1] + conc)", residual_sum_of_squares = rss,
    loglik_sum = -n / 2 * (log(2 * pi * rss / n) + 1),
    theta_names = names(coef(fit)), theta = theta, covariance = kinds, r_reports = "expected_unbiased",
    evaluations = list(
      initial_slope = closed("theta[0] / theta[1]"),
      rate_at_a_half = closed("theta[0] * 0.5 / (theta[1] + 0.5)"),
      concentration_for_rate_150 = closed("150 * theta[1] / (theta[0] - 150)"),
      average_elasticity = by_hand(
        "mean(theta[1] / (theta[1] + conc))", function(t) mean(t[2] / (t[2] + c0)))))
})

# --- An ordered outcome with frequency weights --------------------------------------------------------

ordered_logit <- local({
  fit <- polr(Sat ~ Infl + Type + Cont, housing, weights = Freq, Hess = TRUE, control = list(reltol = 1e-15))
  X <- unname(model.matrix(~ Infl + Type + Cont, housing)[, -1])
  y <- as.integer(housing$Sat) - 1; w <- housing$Freq
  upper <- cbind(-X, y == 0, y == 1); lower <- cbind(-X, y == 1, y == 2)
  part <- function(t, rows, infinite, at_infinity) {
    p <- ifelse(infinite, at_infinity, plogis(drop(rows %*% t)))
    list(p = p, d = p * (1 - p), dd = p * (1 - p) * (1 - 2 * p))
  }
  pieces <- function(t) {
    a <- part(t, upper, y == 2, 1); b <- part(t, lower, y == 0, 0)
    list(a = a, b = b, p = a$p - b$p, s = (upper * a$d - lower * b$d) / (a$p - b$p))
  }
  score <- function(t) colSums(w * pieces(t)$s)
  information <- function(t) with(pieces(t),
    crossprod(s, w * s) - crossprod(upper, upper * w * a$dd / p) + crossprod(lower, lower * w * b$dd / p))
  theta <- newton(c(coef(fit), fit$zeta), score, information)
  V <- solve(information(theta))
  same(theta, c(coef(fit), fit$zeta), 1e-3); same(sqrt(diag(V)), sqrt(diag(vcov(fit))), 1e-3)
  same(information(theta), numDeriv::jacobian(function(t) -score(t), theta), 1e-6)
  x0 <- c(0, 1, 1, 0, 0, 1)
  case(
    model = "MASS::polr(Sat ~ Infl + Type + Cont, weights = Freq), MASS::housing",
    note = "P(y <= k) = expit(cut_k - X beta), y = 0, 1, 2; theta is the six beta and the two cuts. Every row counts
            `weights` times: the objective is the sum of weights * loglik. polr's own theta and numerical Hessian are good to three or four digits;
            these were finished by Newton's method and the analytic Hessian.",
    data = list(y = y, X = X, weights = w, x0 = x0),
    loglik = "log(expit(append(theta[6:], inf)[y] - X @ theta[:6]) - expit(append(-inf, theta[6:])[y] - X @ theta[:6]))",
    loglik_sum = sum(w * log(pieces(theta)$p)),
    theta_names = c(names(coef(fit)), names(fit$zeta)), theta = theta,
    covariance = list(observed = V), r_reports = "observed",
    evaluations = list(
      odds_ratio_high_influence = closed("exp(theta[1])"),
      ratio_of_influences = closed("theta[1] / theta[0]"),
      high_satisfaction_at_x0 = closed("1 / (1 + exp(theta[7] - theta[1] - theta[2] - theta[5]))"),
      average_effect_of_high_influence = by_hand(
        "average(expit(X @ theta[:6] + (1 - X[:, 1]) * theta[1] - X[:, 0] * theta[0] - theta[7]) - expit(X @ theta[:6] - X[:, 0] * theta[0] - X[:, 1] * theta[1] - theta[7]), weights=weights)",
        function(t) {
          X0 <- X; X0[, 1:2] <- 0
          sum(w * (expit(set_to(X0, 2, 1) %*% t[1:6] - t[8]) - expit(X0 %*% t[1:6] - t[8]))) / sum(w)
        })))
})

write_golden("delta_method.json", list(
  logit_birthwt = logit, probit_birthwt = probit, poisson_warpbreaks = poisson_breaks,
  negative_binomial_quine = negative_binomial, gamma_clotting = gamma_clotting, weibull_ovarian = weibull,
  linear_mtcars = linear, michaelis_menten_puromycin = michaelis_menten, ordered_logit_housing = ordered_logit),
  c("car", "MASS", "survival", "numDeriv"))
