# Estimating equations: two-stage least squares, GMM with Hansen's J, instrumental Poisson, inverse
# probability weighting, Heckman's two steps and GEE, on published data sets.
# Run in this directory: Rscript equations.R

source("common.R")
suppressMessages({library(AER); library(gmm); library(geepack); library(numDeriv)})

# Sandwich of stacked equations m(theta), (n, d), by numDeriv: the second route to each case below.
stacked <- function(m, theta) {
  B <- jacobian(function(th) colSums(m(th)), theta)
  inverse <- solve(B)
  inverse %*% crossprod(m(theta)) %*% t(inverse)
}
errors <- function(covariance) I(unname(sqrt(diag(covariance))))

# Cigarette demand of 48 states in 1995 (Stock and Watson), price instrumented by two taxes.
data("CigarettesSW")
states <- subset(CigarettesSW, year == 1995)
states <- transform(states, rprice = price / cpi, rincome = income / population / cpi,
                    salestax = (taxs - tax) / cpi, excise = tax / cpi)
y <- log(states$packs)
X <- cbind(1, log(states$rprice), log(states$rincome))
Z <- cbind(1, log(states$rincome), states$salestax, states$excise)
iv <- ivreg(y ~ X - 1 | Z - 1)
tsls <- list(
  model = "ivreg(log(packs) ~ log(rprice) + log(rincome) | log(rincome) + salestax + excise), AER's CigarettesSW, 1995",
  data = list(y = y, X = X, Z = Z),
  theta = I(unname(coef(iv))),
  hc0 = errors(vcovHC(iv, type = "HC0")), hc1 = errors(vcovHC(iv, type = "HC1")))

# Two-step GMM of the same: first step with the identity, then the inverse scatter, not centered.
minimum <- function(W) solve(t(X) %*% Z %*% W %*% t(Z) %*% X, t(X) %*% Z %*% W %*% t(Z) %*% y)
scatter <- function(b) crossprod(Z * drop(y - X %*% b))
result <- function(b, W) {
  G <- -t(Z) %*% X
  bread <- solve(t(G) %*% W %*% G)
  V <- bread %*% t(G) %*% W %*% scatter(b) %*% W %*% G %*% bread
  total <- colSums(Z * drop(y - X %*% b))
  J <- drop(total %*% W %*% total)
  list(theta = I(drop(b)), hc0 = errors(V), j = J, p_value = pchisq(J, 1, lower.tail = FALSE))
}
W <- solve(scatter(minimum(diag(4))))
two_step <- result(minimum(W), W)
b <- minimum(W)
for (round in 1:500) { W <- solve(scatter(b)); b <- minimum(W) }
iterated <- result(b, W)
package <- gmm(y ~ X - 1, ~ Z - 1, type = "iterative", vcov = "MDS", centeredVcov = FALSE,
               crit = 1e-11, itermax = 1000)
same(coef(package), iterated$theta, 1e-5)
same(sqrt(diag(vcov(package))), iterated$hc0, 1e-5)
same(specTest(package)$test[1], iterated$j, 1e-4)
gmm_case <- list(model = "GMM of the same; `iterated` agrees with R's gmm(type = \"iterative\", vcov = \"MDS\", centeredVcov = FALSE)",
                 two_step = two_step, iterated = iterated)

# Visits to a doctor (AER's NMES1988, the first 1200 men), chronic conditions instrumented: E z (y - exp(x'b)) = 0.
data("NMES1988")
people <- head(subset(NMES1988, gender == "male"), 1200)
y <- people$visits
X <- cbind(1, people$chronic, people$school / 10)
Z <- cbind(1, people$health == "poor", people$school / 10)
m <- function(b) Z * drop(y - exp(X %*% b))
b <- newton(c(log(mean(y)), 0, 0), function(b) colSums(m(b)),
            function(b) -jacobian(function(th) colSums(m(th)), b))
G <- -t(Z) %*% (X * drop(exp(X %*% b)))
V <- solve(G) %*% crossprod(m(b)) %*% t(solve(G))
same(V, stacked(m, b), 1e-7)
check <- gmm(function(b, x) m(b), seq_along(y), b, vcov = "MDS", centeredVcov = FALSE,
             gradv = function(b, x) -t(Z) %*% (X * drop(exp(X %*% b))) / length(y))
same(sqrt(diag(vcov(check))), sqrt(diag(V)), 1e-4)
poisson <- list(model = "instrumental Poisson (additive error), AER's NMES1988, first 1200 men; agrees with R's gmm()",
                data = list(y = I(y), X = X, Z = Z), theta = I(b), hc0 = errors(V))

# Effect of college on hours of work of 753 women (AER's PSID1976), by inverse probability weights.
data("PSID1976")
a <- 1 * (PSID1976$education > 12)
y <- PSID1976$hours / 1000
X <- cbind(1, PSID1976$age / 10, PSID1976$youngkids, PSID1976$feducation / 10)
fit <- glm(a ~ X - 1, binomial, control = tight)
p <- fitted(fit)
s <- X * (a - p)
bread <- solve(crossprod(X * sqrt(p * (1 - p))))           # inverse information of the logit
ate <- mean(a * y / p - (1 - a) * y / (1 - p))
slope <- colMeans(-X * (a * y * (1 - p) / p + (1 - a) * y * p / (1 - p)))
influence <- a * y / p - (1 - a) * y / (1 - p) - ate + length(y) * drop(s %*% bread %*% slope)
ipw <- list(value = ate, se = sqrt(sum(influence^2)) / length(y))
# AIPW: linear outcome models for the treated and the others, stacked too.
one <- lm(y ~ X - 1, weights = a); zero <- lm(y ~ X - 1, weights = 1 - a)
aipw_rows <- function(th) {
  b1 <- th[2:5]; b0 <- th[6:9]; g <- th[10:13]
  p <- drop(expit(X %*% g)); m1 <- drop(X %*% b1); m0 <- drop(X %*% b0)
  cbind(a * (y - m1) / p + m1 - (1 - a) * (y - m0) / (1 - p) - m0 - th[1],
        X * (a * (y - m1)), X * ((1 - a) * (y - m0)), X * (a - p))
}
m1 <- drop(X %*% coef(one)); m0 <- drop(X %*% coef(zero))
value <- mean(a * (y - m1) / p + m1 - (1 - a) * (y - m0) / (1 - p) - m0)
n <- length(y)
own <- a * (y - m1) / p + m1 - (1 - a) * (y - m0) / (1 - p) - m0 - value
by_one <- colMeans(X * (1 - a / p)); by_zero <- -colMeans(X * (1 - (1 - a) / (1 - p)))
by_p <- colMeans(-X * (a * (y - m1) * (1 - p) / p + (1 - a) * (y - m0) * p / (1 - p)))
influence <- own + n * drop((X * (a * (y - m1))) %*% solve(crossprod(X * sqrt(a))) %*% by_one) +
  n * drop((X * ((1 - a) * (y - m0))) %*% solve(crossprod(X * sqrt(1 - a))) %*% by_zero) +
  n * drop(s %*% bread %*% by_p)
aipw <- list(value = value, se = sqrt(sum(influence^2)) / n)
th <- c(value, coef(one), coef(zero), coef(fit))
same(sqrt(stacked(aipw_rows, th)[1, 1]), aipw$se, 1e-6)
effects <- list(model = "glm(a ~ age + youngkids + feducation, binomial), AER's PSID1976; influence functions by hand",
                data = list(a = I(a), y = y, X = X), propensity = I(unname(coef(fit))), ipw = ipw, aipw = aipw)

# Wages of the women who work, corrected for selection (Heckman's two steps).
works <- 1 * (PSID1976$participation == "yes")
wage <- ifelse(works == 1, log(pmax(PSID1976$wage, 1e-8)), 0)
Z <- cbind(1, PSID1976$education / 10, PSID1976$experience / 10, PSID1976$youngkids, PSID1976$age / 10)
X <- cbind(1, PSID1976$education / 10, PSID1976$experience / 10)
probit <- glm(works ~ Z - 1, binomial("probit"), control = tight)
g <- newton(coef(probit), function(g) { e <- drop(Z %*% g); q <- 2 * works - 1; colSums(Z * (q * dnorm(e) / pnorm(q * e))) },
            function(g) { e <- drop(Z %*% g); q <- 2 * works - 1; l <- q * dnorm(e) / pnorm(q * e); t(Z) %*% (Z * (l * (l + e))) })
mills <- function(g) drop(dnorm(Z %*% g) / pnorm(Z %*% g))
second <- lm(wage ~ cbind(X, mills(g)) - 1, weights = works)
score <- function(g) { e <- drop(Z %*% g); q <- 2 * works - 1; Z * (q * dnorm(e) / pnorm(q * e)) }
rows <- function(th) {
  g <- th[1:5]; D <- cbind(X, mills(g))
  cbind(score(g), D * (works * (wage - drop(D %*% th[6:9]))))
}
th <- unname(c(g, coef(second)))
# Murphy and Topel's formula: bread of the second step, and the slope of its equations in the first.
D <- cbind(X, mills(g)); r <- works * (wage - drop(D %*% coef(second))); e <- drop(Z %*% g); l <- mills(g)
A1 <- { q <- 2 * works - 1; k <- q * dnorm(e) / pnorm(q * e); t(Z) %*% (Z * (k * (k + e))) }
dl <- -l * (l + e)
C <- -coef(second)[4] * t(D * works) %*% (Z * dl) + rbind(0, 0, 0, colSums(Z * (dl * r)))
phi <- (D * r + score(g) %*% solve(A1) %*% t(C)) %*% solve(crossprod(D * works))
same(sqrt(colSums(phi^2)), sqrt(diag(stacked(rows, th)))[6:9], 1e-6)
heckman <- list(model = "probit of participation, then lm(log(wage) ~ education + experience + Mills' ratio), AER's PSID1976; Murphy and Topel by hand",
                data = list(works = I(works), wage = wage, Z = Z, X = X), theta = I(th), second_step = I(sqrt(colSums(phi^2))))

# GEE with exchangeable correlation: wheezing of children in Ohio, every fourth child (geepack).
data("ohio")
ohio <- subset(ohio, id %% 4 == 0)
X <- cbind(1, ohio$age, ohio$smoke, ohio$age * ohio$smoke)
gee <- function(family) {
  fit <- geeglm(ohio$resp ~ X - 1, family = family, id = ohio$id, corstr = "exchangeable",
                control = geese.control(epsilon = 1e-12, maxit = 200))
  list(theta = I(unname(coef(fit))), alpha = unname(fit$geese$alpha), se = errors(fit$geese$vbeta))
}
gee_case <- list(model = "geeglm(resp ~ age * smoke, corstr = \"exchangeable\"), geepack's ohio, every fourth child",
                 data = list(y = I(ohio$resp), X = X, id = I(ohio$id)),
                 gaussian = gee(gaussian()), binomial = gee(binomial()))

write_golden("equations.json", list(tsls = tsls, gmm = gmm_case, poisson = poisson, effects = effects,
             heckman = heckman, gee = gee_case), c("AER", "sandwich", "gmm", "geepack", "numDeriv"))
