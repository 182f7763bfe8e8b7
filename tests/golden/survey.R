# Design-based standard errors of three models of a survey of schools, with and without clusters.
# Run in this directory: Rscript survey.R

source("common.R")
suppressMessages(library(survey))
data(api)

# The linearized mean of predictions over the sample: rows of influence on theta, times the gradient of the mean,
# plus the rows' own deviations; svyrecvar() makes the design-based variance of their sum.
average <- function(fit, design, theta) {
  w <- weights(design) / mean(weights(design))
  X <- model.matrix(fit)
  mean_of <- function(eta) fit$family$linkinv(eta)
  h <- mean_of(drop(X %*% theta))
  slope <- colSums(w * fit$family$mu.eta(drop(X %*% theta)) * X) / sum(w)
  # summary(svyglm) has the covariance in the place of cov.unscaled: the bread is naive.cov
  on_theta <- (X * residuals(fit, "working") * fit$weights) %*% fit$naive.cov
  variance <- function(rows) drop(svyrecvar(as.matrix(rows), design$cluster, design$strata, design$fpc))
  own <- w * (h - sum(w * h) / sum(w)) / sum(w)
  same(sqrt(variance(own)), SE(svymean(h, design)), 1e-10)
  same(sqrt(variance(on_theta %*% slope)), standard_error(slope, vcov(fit)), 1e-8)
  list(value = sum(w * h) / sum(w), model = standard_error(slope, vcov(fit)), evaluation = sqrt(variance(own)),
       total = sqrt(variance(on_theta %*% slope + own)))
}

case <- function(formula, family, designs, loglik, inverse) {
  frame <- designs[[1]]$variables
  fits <- lapply(designs, function(design) {
    again <- list(formula = formula, design = design, family = family, control = tight)
    do.call(svyglm, c(again, list(start = coef(do.call(svyglm, again)))))
  })
  theta <- unname(coef(fits[[1]]))
  X <- unname(model.matrix(fits[[1]]))
  list(model = paste0("svyglm(", deparse1(formula), ", ", family$family, "), survey::apiclus2"),
       note = "Sampling weights pw. `rows`: svydesign(id = ~1, weights = ~pw); `clusters`: svydesign(id = ~dnum, weights = ~pw).
               `average` is the mean prediction over the sample, with the design-based error of both its parts.",
       data = list(y = as.numeric(fits[[1]]$y), X = X, weights = frame$pw,
                   clusters = as.integer(factor(frame$dnum)) - 1L),
       loglik = loglik, mean = inverse, theta_names = names(coef(fits[[1]])), theta = theta,
       covariance = lapply(fits, function(fit) unname(vcov(fit))),
       standard_error = lapply(fits, function(fit) unname(SE(fit))),
       df = lapply(fits, function(fit) fit$df.residual),
       average = Map(function(fit, design) average(fit, design, theta), fits, designs))
}

schools <- transform(apiclus2[!is.na(apiclus2$mobility), ], wide = +(sch.wide == "Yes"), gain = pmax(api00 - api99, 0),
                     ell = ell / 10, meals = meals / 10, mobility = mobility / 10)
designs <- list(rows = svydesign(id = ~1, weights = ~pw, data = schools),
                clusters = svydesign(id = ~dnum, weights = ~pw, data = schools))

write_golden("survey.json", list(
  gaussian = case(api00 ~ ell + meals + mobility, gaussian(), designs, "-((y - X @ theta) ** 2) / 2", "X @ theta"),
  logit = case(wide ~ ell + meals + mobility, quasibinomial(), designs, "y * (X @ theta) - logaddexp(0, X @ theta)", "expit(X @ theta)"),
  poisson = case(gain ~ ell + meals + mobility, quasipoisson(), designs, "y * (X @ theta) - exp(X @ theta)", "exp(X @ theta)")),
  "survey")
