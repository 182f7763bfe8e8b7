# Robust (HC0) and clustered standard errors of nonlinear functions of two published models.
# Run in this directory: Rscript robust.R

source("common.R")
suppressMessages({library(sandwich); library(MASS)})

case <- function(fit, model, clusters, data, loglik, evaluations) {
  theta <- unname(coef(fit))
  clusters <- as.integer(factor(clusters)) - 1L
  covariance <- lapply(list(
    model = vcov(fit), hc0 = sandwich(fit), cluster = vcovCL(fit, clusters, type = "HC0", cadjust = FALSE)), unname)
  # Row i moves theta by A^-1 score_i.
  influence_on_theta <- unname(estfun(fit)) %*% covariance$model
  same(crossprod(influence_on_theta), covariance$hc0, 1e-9)
  same(crossprod(rowsum(influence_on_theta, clusters)), covariance$cluster, 1e-9)
  evaluate <- function(e) {
    value <- Re(e$g(theta)); slope <- gradient(e$g, theta)
    same(slope, numDeriv::grad(function(t) Re(e$g(t)), theta), 1e-6)
    se <- lapply(covariance, function(V) standard_error(slope, V))
    list(formula = e$formula, value = value, gradient = slope, standard_error = se,
         wald_95 = lapply(se, function(s) wald(value, s, 0.95)), influence = drop(influence_on_theta %*% slope))
  }
  list(model = model,
       note = "Canonical link. `model` inverts the information A; `hc0` is sandwich::sandwich, A^-1 (sum of s_i s_i') A^-1;
               `cluster` is sandwich::vcovCL(type = \"HC0\", cadjust = FALSE), with the scores summed within clusters first and no small-sample factor.
               `influence` is gradient' A^-1 s_i: its sum of squares is the HC0 variance.",
       data = c(data, list(clusters = clusters)), loglik = loglik, loglik_sum = as.numeric(logLik(fit)),
       theta_names = names(coef(fit)), theta = theta, covariance = covariance,
       evaluations = lapply(evaluations, evaluate))
}

set_to <- function(X, column, value) { X[, column] <- value; X }

logit <- local({
  frame <- transform(bacteria, present = +(y == "y"), drug = +(trt == "drug"), drug_plus = +(trt == "drug+"), late = +(week > 2))
  fit <- tight_glm(present ~ drug + drug_plus + late, binomial, frame)
  X <- unname(model.matrix(fit))
  case(
    fit, "glm(present ~ drug + drug_plus + late, binomial), MASS::bacteria, clusters = patient (ID)", frame$ID,
    list(y = frame$present, X = X), "y * (X @ theta) - logaddexp(0, X @ theta)",
    list(
      ratio_of_coefficients = list(formula = "theta[2] / theta[1]", g = function(t) t[3] / t[2]),
      odds_ratio_late = list(formula = "exp(theta[3])", g = function(t) exp(t[4])),
      average_effect_of_late = list(
        formula = "mean(expit(X @ theta + (1 - X[:, 3]) * theta[3]) - expit(X @ theta - X[:, 3] * theta[3]))",
        g = function(t) mean(expit(set_to(X, 4, 1) %*% t) - expit(set_to(X, 4, 0) %*% t)))))
})

poisson_epil <- local({
  frame <- transform(epil, progabide = +(trt == "progabide"))
  fit <- tight_glm(y ~ lbase * progabide + lage + V4, poisson, frame)
  X <- unname(model.matrix(fit))   # columns: 1, lbase, progabide, lage, V4, lbase * progabide
  case(
    fit, "glm(y ~ lbase * progabide + lage + V4, poisson), MASS::epil, clusters = subject", frame$subject,
    list(y = frame$y, X = X), "y * (X @ theta) - exp(X @ theta) - gammaln(y + 1)",
    list(
      base_where_treatment_does_nothing = list(formula = "-theta[2] / theta[5]", g = function(t) -t[3] / t[6]),
      rate_ratio_at_mean_base = list(formula = "exp(theta[2])", g = function(t) exp(t[3])),
      average_effect_of_treatment = list(
        formula = "mean(exp(X @ theta + (1 - X[:, 2]) * theta[2] + (X[:, 1] - X[:, 5]) * theta[5]) - exp(X @ theta - X[:, 2] * theta[2] - X[:, 5] * theta[5]))",
        g = function(t) {
          X1 <- set_to(set_to(X, 3, 1), 6, X[, 2]); X0 <- set_to(set_to(X, 3, 0), 6, 0)
          mean(exp(X1 %*% t) - exp(X0 %*% t))
        })))
})

write_golden("robust.json", list(logit_bacteria = logit, poisson_epil = poisson_epil), c("sandwich", "MASS", "numDeriv"))
