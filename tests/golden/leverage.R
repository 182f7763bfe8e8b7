# Variances for few rows, few clusters and serial correlation: HC2, HC3, CR2 with Satterthwaite's
# degrees of freedom, two ways of clustering, HAC. Run in this directory: Rscript leverage.R

source("common.R")
suppressMessages({library(sandwich); library(clubSandwich); library(MASS)})

codes <- function(labels) as.integer(factor(labels)) - 1L

# clubSandwich prints its results rounded; the columns are not.
satterthwaite <- function(fit, V, slope) linear_contrast(fit, vcov = V, contrasts = rbind(slope), test = "Satterthwaite")$df

rows <- function(fit) list(
  hc1 = vcovHC(fit, "HC1"), hc2 = vcovHC(fit, "HC2"), hc3 = vcovHC(fit, "HC3"))

two_ways <- function(fit, first, second) {
  both <- cbind(first, second)
  V <- list(
    two_way = vcovCL(fit, both, type = "HC0", cadjust = FALSE),
    two_way_cr1 = vcovCL(fit, both, type = "HC0", cadjust = TRUE))
  # The factor (n - 1) / (n - d) that vcovCL gives "HC1" for lm and glm alike.
  c(V, list(two_way_cr1s = vcovCL(fit, both, type = "HC1", cadjust = TRUE)))
}

series <- function(fit) list(
  hac_bartlett_4 = NeweyWest(fit, lag = 4, prewhite = FALSE),
  hac_bartlett_3_adjusted = NeweyWest(fit, lag = 3, prewhite = FALSE, adjust = TRUE),
  hac_parzen_4 = kernHAC(fit, kernel = "Parzen", bw = 5, prewhite = FALSE, adjust = FALSE))

case <- function(fit, model, family, data, evaluations, clusters = NULL, second = NULL, time = FALSE) {
  theta <- unname(coef(fit))
  hc2 <- vcovCR(fit, cluster = seq_along(fitted(fit)), type = "CR2")
  same(as.matrix(hc2), vcovHC(fit, "HC2"), 1e-9)   # two routes to HC2
  covariance <- rows(fit)
  degrees <- list(hc2 = hc2)
  if (!is.null(clusters)) {
    degrees$cr2 <- vcovCR(fit, cluster = clusters, type = "CR2")
    covariance <- c(covariance, list(cr2 = as.matrix(degrees$cr2)))
  }
  if (!is.null(second)) covariance <- c(covariance, two_ways(fit, clusters, second))
  if (time) covariance <- c(covariance, series(fit))
  evaluate <- function(e) {
    slope <- gradient(e$g, theta)
    list(formula = e$formula, value = Re(e$g(theta)), gradient = slope,
         standard_error = lapply(covariance, function(V) standard_error(slope, V)),
         df = lapply(degrees, function(V) satterthwaite(fit, V, slope)))
  }
  list(model = model, family = family,
       note = "`hc1`, `hc2`, `hc3`: sandwich::vcovHC. `cr2`: clubSandwich::vcovCR(type = \"CR2\") with the working variance of the model.
               `two_way`: sandwich::vcovCL of both columns, type \"HC0\", without cadjust; `two_way_cr1` with it; `two_way_cr1s` type \"HC1\" with it.
               `hac_bartlett_L`: NeweyWest(lag = L, prewhite = FALSE); `hac_parzen_4`: kernHAC(kernel = \"Parzen\", bw = 5, prewhite = FALSE, adjust = FALSE).
               `df`: clubSandwich::linear_contrast(test = \"Satterthwaite\"), of HC2 with each row a cluster.",
       data = c(data, if (!is.null(clusters)) list(clusters = codes(clusters)), if (!is.null(second)) list(second = codes(second))),
       theta = theta, evaluations = lapply(evaluations, evaluate))
}

schools <- local({   # Alaska has two thirds of all leverage of the square
  data(PublicSchools, package = "sandwich")
  frame <- na.omit(transform(PublicSchools, income = Income / 10000))
  fit <- lm(Expenditure ~ income + I(income^2), frame)
  case(fit, "lm(Expenditure ~ income + I(income^2)), sandwich::PublicSchools", "gaussian",
       list(y = unname(frame$Expenditure), X = unname(model.matrix(fit))), list(
    square = list(formula = "theta[2]", g = function(t) t[3]),
    turning_point = list(formula = "-theta[1] / (2 * theta[2])", g = function(t) -t[2] / (2 * t[3]))))
})

investment <- local({
  data(Investment, package = "sandwich")
  frame <- as.data.frame(Investment)
  fit <- lm(RealInv ~ RealGNP + RealInt, frame)
  frame <- na.omit(frame[, c("RealInv", "RealGNP", "RealInt")])
  case(fit, "lm(RealInv ~ RealGNP + RealInt), sandwich::Investment", "gaussian",
       list(y = frame$RealInv, X = unname(model.matrix(fit))), list(
    interest = list(formula = "theta[2]", g = function(t) t[3]),
    ratio = list(formula = "theta[2] / theta[1]", g = function(t) t[3] / t[2])), time = TRUE)
})

orthodont <- local({   # unbalanced: some visits are left out; sex is constant within a child
  frame <- transform(as.data.frame(nlme::Orthodont), girl = +(Sex == "Female"))
  frame <- frame[-c(2, 3, 7, 30, 31, 32, 61, 75, 76, 100), ]
  frame$Subject <- as.character(frame$Subject)
  fit <- lm(distance ~ age * girl, frame)
  case(fit, "lm(distance ~ age * girl), nlme::Orthodont less ten rows, clusters = Subject, second = an arbitrary grouping that crosses it", "gaussian",
       list(y = frame$distance, X = unname(model.matrix(fit))), list(
    growth = list(formula = "theta[1]", g = function(t) t[2]),
    difference_at_14 = list(formula = "theta[2] + 14 * theta[3]", g = function(t) t[3] + 14 * t[4]),
    relative_growth = list(formula = "theta[3] / theta[1]", g = function(t) t[4] / t[2])),
    clusters = frame$Subject, second = (seq_len(nrow(frame)) * 5) %/% 7 %% 6)
})

children <- local({   # a dummy for each of seven children: each takes one direction of its cluster whole
  frame <- as.data.frame(nlme::Orthodont)[1:28, ]
  frame$Subject <- factor(as.character(frame$Subject))
  fit <- lm(distance ~ age + Subject, frame)
  case(fit, "lm(distance ~ age + Subject), nlme::Orthodont, seven boys", "gaussian",
       list(y = frame$distance, X = unname(model.matrix(fit))), list(
    growth = list(formula = "theta[1]", g = function(t) t[2])), clusters = frame$Subject)
})

bacteria_logit <- local({
  frame <- transform(bacteria[1:90, ], present = +(y == "y"), treated = +(trt != "placebo"), late = +(week > 2))
  fit <- tight_glm(present ~ treated + late, binomial, frame)
  X <- unname(model.matrix(fit))
  case(fit, "glm(present ~ treated + late, binomial), MASS::bacteria, the first 90 rows, clusters = ID", "binomial",
       list(y = frame$present, X = X), list(
    odds_ratio_treated = list(formula = "exp(theta[1])", g = function(t) exp(t[2])),
    average_effect_of_late = list(
      formula = "mean(expit(X @ theta + (1 - X[:, 2]) * theta[2]) - expit(X @ theta - X[:, 2] * theta[2]))",
      g = function(t) { X1 <- X0 <- X; X1[, 3] <- 1; X0[, 3] <- 0; mean(expit(X1 %*% t) - expit(X0 %*% t)) })),
    clusters = as.character(frame$ID), second = (seq_len(nrow(frame)) * 5) %/% 7 %% 6)
})

epil_poisson <- local({
  frame <- transform(epil[65:164, ], progabide = +(trt == "progabide"))
  fit <- tight_glm(y ~ lbase + progabide + V4, poisson, frame)
  case(fit, "glm(y ~ lbase + progabide + V4, poisson), MASS::epil, rows 65 to 164, clusters = subject", "poisson",
       list(y = frame$y, X = unname(model.matrix(fit))), list(
    base = list(formula = "theta[1]", g = function(t) t[2]),
    rate_ratio = list(formula = "exp(theta[2])", g = function(t) exp(t[3]))),
    clusters = frame$subject, second = (seq_len(nrow(frame)) * 5) %/% 7 %% 6)
})

write_golden("leverage.json", list(
  schools = schools, investment = investment, orthodont = orthodont, children = children,
  bacteria_logit = bacteria_logit, epil_poisson = epil_poisson),
  c("sandwich", "clubSandwich", "MASS", "nlme"))
