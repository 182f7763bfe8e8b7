# Likelihood-ratio limits of coefficients, of an LD50 and of a variance, with Wald limits beside them.
# Run in this directory: Rscript profile.R

source("common.R")
suppressMessages(library(MASS))

# Everything about one psi follows from its profile: a function of psi that returns
#   drop = L(theta-hat) - max of L given psi,   lambda = -d/dpsi of that constrained maximum,
# so that the constrained maximum is a stationary point of L + lambda * psi.
likelihood_ratio <- function(formula, value, se, profile, levels, lower_bound = -Inf, confint = NULL) {
  limits <- lapply(setNames(levels, levels), function(level) {
    profile_limits <- c(limit(profile, value, -se, level, lower_bound), limit(profile, value, se, level, lower_bound))
    c(list(profile = profile_limits, lambda = vapply(profile_limits, function(psi) profile(psi)$lambda, 0),
           on_lambda_path = vapply(profile_limits, on_lambda_path, NA, profile = profile, value = value),
           wald = wald(value, se, level)),
      if (!is.null(confint)) list(confint = confint(level)))
  })
  list(formula = formula, value = value, standard_error = se, limits = limits)
}

limit <- function(profile, value, step, level, lower_bound) {
  excess <- function(psi) 2 * profile(psi)$drop - qchisq(level, 1)
  far <- value + step
  while (excess(far) < 0) {
    step <- 1.5 * step
    far <- max(value + step, (lower_bound + min(far, value)) / 2)
  }
  uniroot(excess, sort(c(value, far)), tol = 1e-14 * abs(value - far), maxiter = 10000)$root
}

# Past the point where lambda stops growing with psi, the constrained maximum is no longer a local maximum of L + lambda * psi.
on_lambda_path <- function(profile, value, end) {
  lambda <- vapply(seq(value, end, length.out = 400), function(psi) profile(psi)$lambda, 0)
  all(diff(lambda) * sign(end - value) > 0)
}

# The profile of one coefficient of a GLM with canonical link: refit the others with that column as an offset.
coefficient_profile <- function(fit, j) {
  X <- model.matrix(fit); n <- weights(fit, "prior"); V <- vcov(fit)
  function(psi) {
    linear_guess <- coef(fit)[-j] + V[-j, j] / V[j, j] * (psi - coef(fit)[j])
    rest <- glm.fit(X[, -j, drop = FALSE], fit$y, n, family = fit$family, offset = psi * X[, j],
                    start = linear_guess, control = tight)
    list(drop = (rest$deviance - fit$deviance) / 2, lambda = -sum(n * (fit$y - rest$fitted.values) * X[, j]))
  }
}

coefficients_of <- function(fit, levels) {
  curves <- profile(fit, alpha = 0.01, del = 0.05, maxsteps = 100)   # 6 times as many knots as the default
  splines <- lapply(setNames(levels, levels), function(level) confint(curves, level = level))
  lapply(setNames(seq_along(coef(fit)), names(coef(fit))), function(j) likelihood_ratio(
    sprintf("theta[%d]", j - 1), unname(coef(fit)[j]), unname(sqrt(vcov(fit)[j, j])), coefficient_profile(fit, j), levels,
    confint = function(level) unname(splines[[as.character(level)]][j, ])))
}

grouped <- local({
  frame <- data.frame(ldose = rep(0:5, 2), male = rep(1:0, each = 6), dead = c(1, 4, 9, 13, 18, 20, 0, 2, 6, 10, 12, 16))
  fit <- tight_glm(cbind(dead, 20 - dead) ~ male + ldose, binomial, frame)
  b <- unname(coef(fit))

  # eta = beta (ldose - log2_ld50) + difference * (other sex): fixing log2_ld50 of one sex leaves a GLM without intercept.
  log2_ld50 <- function(sex) -(b[1] + sex * b[2]) / b[3]
  ld50_profile <- function(sex) function(psi) {
    rest <- glm.fit(cbind(frame$ldose - psi, frame$male != sex), fit$y, rep(20, 12), family = binomial(),
                    start = c(b[3], (1 - 2 * sex) * b[2]), control = tight)
    list(drop = (rest$deviance - fit$deviance) / 2,
         lambda = rest$coefficients[1] * sum(20 * (fit$y - rest$fitted.values)))
  }
  on_dose_scale <- function(profile) function(psi) {
    at <- profile(log2(psi))
    list(drop = at$drop, lambda = at$lambda / (psi * log(2)))
  }
  evaluation <- function(formula, g, profile, lower_bound = -Inf) likelihood_ratio(
    formula, Re(g(b)), standard_error(gradient(g, b), vcov(fit)), profile, c(0.8, 0.9, 0.95), lower_bound)
  list(model = "glm(cbind(dead, 20 - dead) ~ male + ldose, binomial), the budworm data of Venables and Ripley (2002, p. 190)",
       note = "Each row is a group of m = 20 moths; ldose is log2 of the dose. `profile` is exact to about 1e-10,
               `confint` the spline interpolation of confint(glm).",
       data = list(y = frame$dead, m = rep(20, 12), X = unname(model.matrix(fit))),
       loglik = "y * (X @ theta) - m * logaddexp(0, X @ theta) + gammaln(m + 1) - gammaln(y + 1) - gammaln(m - y + 1)",
       loglik_sum = as.numeric(logLik(fit)), theta_names = names(coef(fit)), theta = b, covariance = unname(vcov(fit)),
       evaluations = c(coefficients_of(fit, c(0.9, 0.95)), list(
         log2_ld50_female = evaluation("-theta[0] / theta[2]", function(t) -t[1] / t[3], ld50_profile(0)),
         log2_ld50_male = evaluation("-(theta[0] + theta[1]) / theta[2]", function(t) -(t[1] + t[2]) / t[3], ld50_profile(1)),
         ld50_female = evaluation("2 ** (-theta[0] / theta[2])", function(t) exp(-log(2) * t[1] / t[3]),
                                  on_dose_scale(ld50_profile(0)), 0),
         ld50_male = evaluation("2 ** (-(theta[0] + theta[1]) / theta[2])", function(t) exp(-log(2) * (t[1] + t[2]) / t[3]),
                                on_dose_scale(ld50_profile(1)), 0))))
})

counts <- local({
  fit <- tight_glm(breaks ~ wool + tension, poisson, warpbreaks)
  list(model = "glm(breaks ~ wool + tension, poisson), datasets::warpbreaks",
       note = "`profile` is exact to about 1e-10, `confint` the spline interpolation of confint(glm).",
       data = list(y = warpbreaks$breaks, X = unname(model.matrix(fit))),
       loglik = "y * (X @ theta) - exp(X @ theta) - gammaln(y + 1)",
       loglik_sum = as.numeric(logLik(fit)), theta_names = names(coef(fit)), theta = unname(coef(fit)), covariance = unname(vcov(fit)),
       evaluations = coefficients_of(fit, c(0.9, 0.95)))
})

births <- local({
  fit <- tight_glm(low ~ lwt + smoke + ht, binomial, birthwt)
  list(model = "glm(low ~ lwt + smoke + ht, binomial), MASS::birthwt",
       note = "`profile` is exact to about 1e-10, `confint` the spline interpolation of confint(glm).",
       data = list(y = birthwt$low, X = unname(model.matrix(fit))),
       loglik = "y * (X @ theta) - logaddexp(0, X @ theta)",
       loglik_sum = as.numeric(logLik(fit)), theta_names = names(coef(fit)), theta = unname(coef(fit)), covariance = unname(vcov(fit)),
       evaluations = coefficients_of(fit, c(0.9, 0.95)))
})

normal_sample <- local({
  y <- women$weight; n <- length(y); v <- mean((y - mean(y))^2)
  loss <- function(ratio) n / 2 * (1 / ratio - 1 + log(ratio))
  variance <- function(psi) list(drop = loss(psi / v), lambda = n / (2 * psi) * (1 - v / psi))
  log_variance <- function(psi) list(drop = loss(exp(psi) / v), lambda = n / 2 * (1 - v * exp(-psi)))
  levels <- c(0.8, 0.9, 0.95)
  list(model = "a normal sample of n = 15: the weights of datasets::women",
       note = "theta is (mean, log of the standard deviation). The multiplier of the variance grows only up to twice the
               estimate: the upper 0.95 limit lies beyond, where no local maximum of L + lambda * psi exists; the logarithm of the variance has no such fold.",
       data = list(y = y),
       loglik = "-0.5 * ((y - theta[0]) / exp(theta[1])) ** 2 - theta[1] - 0.5 * log(2 * pi)",
       loglik_sum = -n / 2 * (log(2 * pi * v) + 1), theta_names = c("mean", "log(sd)"), theta = c(mean(y), log(v) / 2),
       covariance = diag(c(v / n, 1 / (2 * n))),
       evaluations = list(
         variance = likelihood_ratio("exp(2 * theta[1])", v, v * sqrt(2 / n), variance, levels, 0),
         log_variance = likelihood_ratio("2 * theta[1]", log(v), sqrt(2 / n), log_variance, levels)))
})

write_golden("profile.json", list(
  logit_budworm = grouped, poisson_warpbreaks = counts, logit_birthwt = births, normal_variance = normal_sample), "MASS")
