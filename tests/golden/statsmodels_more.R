# Standard errors of models whose rows are dependent or censored: Cox, conditional logit, ARIMA,
# mixed, Tobit and hurdle models. Run in this directory: Rscript statsmodels_more.R

source("common.R")
suppressMessages({library(survival); library(lme4); library(AER); library(pscl); library(MASS)})

numbers <- function(frame) lapply(as.list(frame), function(column) as.numeric(column))

cox <- local({
  frame <- survival::lung[complete.cases(survival::lung[, c("time", "status", "age", "sex", "ph.ecog", "inst")]), ]
  frame <- transform(frame, event = +(status == 2), month = ceiling(time / 30.5))  # months have ties
  fits <- lapply(setNames(nm = c("breslow", "efron")), function(ties) {
    control <- coxph.control(eps = 1e-13, toler.chol = 1e-14, iter.max = 50)
    robust <- coxph(Surv(month, event) ~ age + sex + ph.ecog, frame, ties = ties, robust = TRUE, control = control)
    clustered <- coxph(Surv(month, event) ~ age + sex + ph.ecog, frame, ties = ties, cluster = inst, control = control)
    list(theta = unname(coef(robust)), model = unname(sqrt(diag(robust$naive.var))),
         hc0 = unname(sqrt(diag(vcov(robust)))), cluster = unname(sqrt(diag(vcov(clustered)))))
  })
  list(model = "coxph(Surv(month, event) ~ age + sex + ph.ecog, robust = TRUE or cluster = inst), survival::lung in months",
       data = numbers(frame[, c("month", "event", "age", "sex", "ph.ecog", "inst")]), fits = fits)
})

conditional <- local({
  fit <- clogit(case ~ spontaneous + induced + strata(stratum), infert, method = "exact")
  list(model = "clogit(case ~ spontaneous + induced + strata(stratum)), datasets::infert",
       data = numbers(infert[, c("case", "spontaneous", "induced", "stratum")]),
       theta = unname(coef(fit)), standard_error = unname(sqrt(diag(vcov(fit)))))
})

series <- local({
  y <- as.numeric(lh)
  fit <- arima(lh, order = c(1, 0, 1), method = "ML", optim.control = list(reltol = 1e-15, maxit = 1000))
  # Minus the profile log-likelihood of (ar, ma, intercept), by arima's own filter.
  minus <- function(p) -arima(lh, order = c(1, 0, 1), fixed = p, transform.pars = FALSE, method = "ML")$loglik
  V <- solve(numDeriv::hessian(minus, coef(fit)))
  same(sqrt(diag(V)), sqrt(diag(vcov(fit))), 1e-3)  # arima's own Hessian is rougher
  list(model = "arima(lh, c(1, 0, 1), method = 'ML'), with the Hessian of numDeriv", data = list(y = y),
       theta = unname(coef(fit)), standard_error = unname(sqrt(diag(V))))
})

mixed <- local({
  frame <- transform(sleepstudy, subject = as.integer(Subject))[1:170, ]  # not balanced
  fit <- lmer(Reaction ~ Days + (1 + Days | subject), frame, REML = FALSE,
              control = lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-10)))
  X <- getME(fit, "X"); y <- getME(fit, "y"); rows <- split(seq_along(y), frame$subject)
  # Minus the log-likelihood of (fixed effects, variances and covariance over s2), s2 at its maximum.
  minus <- function(p) {
    Psi <- matrix(c(p[3], p[4], p[4], p[5]), 2)
    parts <- vapply(rows, function(i) {
      V <- diag(length(i)) + X[i, ] %*% Psi %*% t(X[i, ]); r <- y[i] - X[i, ] %*% p[1:2]
      c(determinant(V)$modulus, sum(r * solve(V, r)))
    }, c(0, 0))
    n <- length(y); s2 <- sum(parts[2, ]) / n
    (n * log(2 * pi * s2) + sum(parts[1, ]) + n) / 2
  }
  Psi <- VarCorr(fit)$subject / sigma(fit)^2
  theta <- c(fixef(fit), Psi[1, 1], Psi[1, 2], Psi[2, 2])
  for (i in 1:5) theta <- theta - solve(numDeriv::hessian(minus, theta), numDeriv::grad(minus, theta))
  same(-minus(theta), as.numeric(logLik(fit)), 1e-9)
  V <- solve(numDeriv::hessian(minus, theta))
  same(sqrt(diag(V))[1:2], sqrt(diag(as.matrix(vcov(fit)))), 0.01)
  list(model = "lmer(Reaction ~ Days + (1 + Days | subject), REML = FALSE), the first 170 rows of lme4::sleepstudy",
       note = "theta: fixed effects, then variance, covariance and variance of the random effects over the residual variance",
       data = numbers(frame[, c("Reaction", "Days", "subject")]),
       theta = unname(theta), standard_error = unname(sqrt(diag(V))))
})

tobit_affairs <- local({
  data("Affairs", package = "AER", envir = environment())
  control <- survreg.control(rel.tolerance = 1e-14, maxiter = 100)
  fit <- tobit(affairs ~ age + yearsmarried + rating, data = Affairs, control = control)
  list(model = "tobit(affairs ~ age + yearsmarried + rating), AER::Affairs; theta ends with log(scale)",
       data = numbers(Affairs[, c("affairs", "age", "yearsmarried", "rating")]),
       theta = unname(c(coef(fit), log(fit$scale))), standard_error = unname(sqrt(diag(vcov(fit)))))
})

hurdle_quine <- local({
  frame <- transform(quine, male = +(Sex == "M"), slow = +(Lrn == "SL"))
  # statsmodels has a censored Poisson for zero or not.
  fit <- hurdle(Days ~ male + slow, frame, dist = "poisson", zero.dist = "poisson",
                control = hurdle.control(reltol = 1e-15))
  list(model = "hurdle(Days ~ male + slow, zero.dist = 'poisson'), MASS::quine; theta: zero part first",
       data = numbers(frame[, c("Days", "male", "slow")]),
       theta = unname(c(fit$coefficients$zero, fit$coefficients$count)),
       standard_error = unname(sqrt(diag(vcov(fit)))[c(4:6, 1:3)]))
})

write_golden("statsmodels_more.json",
             list(cox = cox, clogit = conditional, arima = series, mixed = mixed, tobit = tobit_affairs, hurdle = hurdle_quine),
             c("survival", "lme4", "AER", "pscl", "MASS", "numDeriv"))
