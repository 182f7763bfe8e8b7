# Nonlinear least squares as `nls` has it: standard errors from the Gauss-Newton matrix, t tests, F tests of nested fits, weights.
# Run in this directory: Rscript least_squares.R

source("common.R")

exact <- nls.control(maxiter = 500, tol = 1e-10, warnOnly = TRUE, nDcentral = TRUE)

# A four-parameter logistic for the DNase assay, run 1, in log10 of the dose: standard error of the EC90 (Gauss-Newton against Hessian).
dose <- local({
  frame <- subset(DNase, Run == 1); x <- log10(frame$conc); y <- frame$density
  fit <- nls(y ~ a + (b - a) / (1 + exp(-(x - m) / s)), start = list(a = 0.0, b = 2.3, m = 0.6, s = 0.4), control = exact)
  theta <- coef(fit); V <- vcov(fit)
  ec90 <- function(th) 10^(th[3] + th[4] * log(9))
  g <- gradient(ec90, theta)
  table <- coef(summary(fit))
  list(model = "nls(four-parameter logistic), datasets::DNase, run 1", data = list(x = x, y = y),
       residuals = "y - theta[0] - (theta[1] - theta[0]) / (1 + exp(-(x - theta[2]) / theta[3]))",
       start = c(0, 2.3, 0.6, 0.4), theta = unname(theta), standard_error = unname(sqrt(diag(V))), df = df.residual(fit),
       statistic = unname(table[, 3]), p_value = unname(table[, 4]),
       ec90 = list(formula = "10 ** (theta[2] + theta[3] * log(9))", value = unname(ec90(theta)), standard_error = standard_error(g, V)))
})

# The same enzyme with weights 1 / sigma^2: relative (nls) and with the variance known.
weighted <- local({
  frame <- subset(Puromycin, state == "treated"); x <- frame$conc; y <- frame$rate
  sigma <- 2 + y / 25
  fit <- nls(y ~ Vm * x / (K + x), start = list(Vm = 200, K = 0.05), weights = 1 / sigma^2, control = exact)
  se <- sqrt(diag(vcov(fit)))
  list(model = "nls(..., weights = 1 / sigma^2), treated rows of datasets::Puromycin", data = list(x = x, y = y, sigma = sigma),
       residuals = "y - theta[0] * x / (theta[1] + x)", start = c(200, 0.05), theta = unname(coef(fit)), df = df.residual(fit),
       standard_error = unname(se), absolute = unname(se / sigma(fit)))
})

# A linear fit whose Wald F test is that of anova().
joint <- local({
  full <- lm(Fertility ~ Agriculture + Examination + Education, swiss); part <- lm(Fertility ~ Education, swiss)
  test <- anova(part, full)
  X <- unname(model.matrix(full))
  list(model = "anova(lm, lm), datasets::swiss", data = list(y = swiss$Fertility, X = X), residuals = "y - X @ theta",
       start = rep(0, 4), theta = unname(coef(full)), standard_error = unname(sqrt(diag(vcov(full)))), df = full$df.residual,
       tested = c(1, 2), F = test$F[2], p_value = test[["Pr(>F)"]][2])
})

write_golden("least_squares.json", list(dose = dose, weighted = weighted, joint = joint), character(0))
