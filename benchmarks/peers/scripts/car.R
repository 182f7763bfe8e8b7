# Answers of R: car and sandwich, and what comes with them (quantreg, stats4).
suppressMessages({
  library(car)
  library(sandwich)
  library(quantreg)
  library(stats4)
})

HAND <- list(
  "3" = "averages of predictions are no formula of parameters: the user differentiates",
  "7" = "profiles are of parameters: the user makes the 95 % point one of them (stats4)"
)
CANNOT <- list(
  "8" = "no networks",
  "9" = "no networks",
  "10" = "takes weights for known: the error of the propensities is left out"
)
NOTES <- list("4" = "quantreg, which car brings along")

fit_1 <- function(data) {
  glm(well ~ treated + age + income, binomial, data)
}

ask_1 <- function(fit, data) {
  found <- deltaMethod(fit, "exp(treated)")
  list(found$Estimate, found$SE)
}

fit_2 <- function(data) {
  glm(died ~ dose, binomial, data)
}

ask_2 <- function(fit, data) {
  found <- deltaMethod(fit, "-a / b", vcov. = sandwich(fit), parameterNames = c("a", "b"))
  list(found$Estimate, found$SE)
}

fit_3 <- function(data) {
  glm(well ~ treated + age + income, binomial, data)
}

ask_3 <- function(fit, data) {
  X <- model.matrix(fit)
  X1 <- X0 <- X
  X1[, "treated"] <- 1
  X0[, "treated"] <- 0
  V <- vcovCL(fit, ~village, type = "HC0", cadjust = FALSE)
  eta1 <- drop(X1 %*% coef(fit))
  eta0 <- drop(X0 %*% coef(fit))
  slope <- colMeans(dlogis(eta1) * X1 - dlogis(eta0) * X0)
  list(mean(plogis(eta1) - plogis(eta0)), sqrt(drop(slope %*% V %*% slope)))
}

fit_4 <- function(data) {
  rq(rent ~ size, tau = 0.5, data)
}

ask_4 <- function(fit, data) {
  found <- summary(fit, se = "nid")$coefficients
  list(found["size", 1], found["size", 2])
}

fit_5 <- function(data) {
  glm(events ~ age + smoker, poisson, data, offset = log(years))
}

ask_5 <- function(fit, data) {
  names <- c("a", "b", "c")
  found <- deltaMethod(fit, "5 * exp(a + 60 * b + c)", vcov. = sandwich(fit), parameterNames = names)
  list(found$Estimate, found$SE)
}

fit_6 <- function(data) {
  start <- list(top = 30, b = 4, rate = 0.1)
  nls(height ~ top * exp(-b * exp(-rate * day)), data, start)
}

ask_6 <- function(fit, data) {
  found <- deltaMethod(fit, "log(b / log(2)) / rate")
  list(found$Estimate, found$SE)
}

fit_7 <- function(data) {
  loss <- function(point, k) {
    scale <- point / log(20)^(1 / k)
    alive <- pweibull(data$time, k, scale, lower.tail = FALSE, log.p = TRUE)
    -sum(ifelse(data$failed == 1, dweibull(data$time, k, scale, log = TRUE), alive))
  }
  mle(loss, list(point = 20, k = 1))
}

ask_7 <- function(fit, data) {
  list(coef(fit)[["point"]], as.numeric(confint(fit, parm = "point")))
}
