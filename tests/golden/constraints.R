# Least squares and a GLM under bounds and equalities: fits, standard errors along the active constraints, and likelihood-ratio limits
# within bounds. Run in this directory: Rscript constraints.R

source("common.R")

# Coefficients of at least zero: nls by the port algorithm; standard errors are those of lm without the columns held at zero.
nonnegative <- local({
  X <- cbind(1, as.matrix(scale(swiss[, -1]))); colnames(X) <- NULL
  y <- swiss$Fertility
  fit <- nls(y ~ drop(X %*% b), start = list(b = c(50, rep(1, 5))), algorithm = "port", lower = c(-Inf, rep(0, 5)),
             control = nls.control(maxiter = 500, tol = 1e-15, scaleOffset = 1, warnOnly = TRUE))
  free <- unname(coef(fit)) > 1e-6 | c(TRUE, rep(FALSE, 5))
  rest <- lm(y ~ X[, free] - 1)
  theta <- se <- rep(0, 6); theta[free] <- coef(rest); se[free] <- sqrt(diag(vcov(rest)))
  stopifnot(max(abs(theta - coef(fit))) < 1e-6, all(crossprod(X[, !free], resid(rest)) < 0))
  list(model = "nls(..., algorithm = 'port', lower = 0), datasets::swiss, columns scaled", data = list(y = y, X = X),
       residuals = "y - X @ theta", low = c("-inf", rep("0", 5)), theta = theta, standard_error = se, df = rest$df.residual,
       multipliers = drop(-t(X) %*% resid(rest)) / summary(rest)$sigma^2)
})

# Michaelis and Menten with K bounded from above: at the bound, and where the bound does nothing.
michaelis <- local({
  frame <- subset(Puromycin, state == "treated")
  control <- nls.control(maxiter = 500, tol = 1e-12, warnOnly = TRUE)
  free <- nls(rate ~ Vm * conc / (K + conc), frame, start = list(Vm = 200, K = 0.05), control = control)
  port <- nls(rate ~ Vm * conc / (K + conc), frame, start = list(Vm = 200, K = 0.04), algorithm = "port", upper = c(Inf, 0.05),
              control = control)
  held <- lm(rate ~ I(conc / (0.05 + conc)) - 1, frame)
  stopifnot(abs(coef(port)[1] - coef(held)) < 1e-5, coef(port)[2] == 0.05)
  rss <- function(Vm) {
    loss <- function(K) sum((frame$rate - Vm * frame$conc / (K + frame$conc))^2)
    best <- optimize(loss, c(0.001, 0.05), tol = 1e-12)
    min(best$objective, loss(0.05))
  }
  least <- sum(resid(held)^2); df <- held$df.residual
  excess <- function(Vm) (rss(Vm) - least) / (least / df) - qt(0.975, df)^2
  V <- unname(coef(held))
  list(model = "nls(rate ~ Vm * conc / (K + conc), algorithm = 'port', upper = c(Inf, 0.05)), treated rows of datasets::Puromycin",
       data = list(y = frame$rate, x = frame$conc), residuals = "y - theta[0] * x / (theta[1] + x)",
       theta = unname(coef(port)), standard_error = c(unname(sqrt(vcov(held)[1, 1])), 0), df = df,
       profile = c(uniroot(excess, c(V - 60, V), tol = 1e-11)$root, uniroot(excess, c(V, V + 60), tol = 1e-11)$root),
       free_theta = unname(coef(free)), free_standard_error = unname(sqrt(diag(vcov(free)))))
})

# Poisson regression with tensionH = 2 tensionM: another design matrix.
equality <- local({
  X <- unname(model.matrix(~ wool + tension, warpbreaks)); y <- warpbreaks$breaks
  map <- rbind(c(1, 0, 0), c(0, 1, 0), c(0, 0, 1), c(0, 0, 2))
  fit <- glm(y ~ X %*% map - 1, family = poisson, control = tight)
  fit <- glm(y ~ X %*% map - 1, family = poisson, control = tight, start = coef(fit))
  V <- map %*% vcov(fit) %*% t(map)
  list(model = "glm(breaks ~ wool + tension, poisson) with tensionH = 2 tensionM, datasets::warpbreaks", data = list(y = y, X = X),
       loglik = "y * (X @ theta) - exp(X @ theta)", theta = drop(map %*% coef(fit)), standard_error = sqrt(diag(V)))
})

write_golden("constraints.json", list(nonnegative = nonnegative, michaelis = michaelis, equality = equality), character(0))
