# Average predictions, comparisons and slopes of eight published models, with delta-method errors.
# Run in this directory: Rscript questions.R
#
# margins and marginaleffects are not needed: an average of predictions is linear in mu(X b), whose
# derivative is mu'(X b) X, so that every gradient below is analytic. numDeriv checks each of them.

source("../common.R")
suppressMessages({library(MASS); library(sandwich); library(splines)})

# --- One linear predictor -------------------------------------------------------------------------

links <- list(
  identity = list(mu = function(e) e, d = function(e) 1 + 0 * e, dd = function(e) 0 * e),
  log = list(mu = exp, d = exp, dd = exp),
  logit = list(mu = plogis, d = dlogis, dd = function(e) dlogis(e) * (1 - 2 * plogis(e))),
  probit = list(mu = pnorm, d = dnorm, dd = function(e) -e * dnorm(e)))

# What a fit has to know: theta, its covariances, the design of any frame, and its link.
fitted_model <- function(fit, frame, link, covariance, theta = coef(fit), scores = NULL) {
  trms <- delete.response(terms(fit))
  design <- function(f) {
    mf <- model.frame(trms, f, xlev = fit$xlevels)
    offset <- model.offset(mf)
    list(X = unname(model.matrix(trms, mf, contrasts.arg = fit$contrasts)),
         offset = if (is.null(offset)) 0 else offset)
  }
  list(frame = frame, theta = unname(theta), covariance = lapply(covariance, unname), scores = scores,
       rows = function(f) {   # predictions and their gradients, one row each
         D <- design(f)
         list(value = function(t) links[[link]]$mu(drop(D$X %*% t) + D$offset),
              slope = function(t) links[[link]]$d(drop(D$X %*% t) + D$offset) * D$X)
       },
       slopes = function(f, variable) {   # derivatives of predictions in a variable, likewise
         D <- design(f); dX <- derivative_of_design(function(g) design(g)$X, f, variable)
         eta <- function(t) drop(D$X %*% t) + D$offset
         list(value = function(t) links[[link]]$d(eta(t)) * drop(dX %*% t),
              slope = function(t) links[[link]]$dd(eta(t)) * drop(dX %*% t) * D$X + links[[link]]$d(eta(t)) * dX)
       })
}

# Central differences with two rounds of Richardson extrapolation: exact for what is a polynomial of
# degree six or less within the step, as cubic splines are between their knots.
derivative_of_design <- function(X, f, variable) {
  x <- f[[variable]]; h <- 1e-3 * sd(x)
  at <- function(step) { g <- f; g[[variable]] <- x + step; suppressWarnings(X(g)) }
  central <- function(h) (at(h) - at(-h)) / (2 * h)
  coarse <- (4 * central(h / 2) - central(h)) / 3
  fine <- (4 * central(h / 4) - central(h / 2)) / 3
  (16 * fine - coarse) / 15
}

# --- Questions --------------------------------------------------------------------------------------

with_value <- function(frame, variable, value) {
  old <- frame[[variable]]
  frame[[variable]] <- if (is.factor(old)) factor(rep_len(value, nrow(frame)), levels(old)) else value
  frame
}

# Groups in sorted order, as a matrix of weights (K, m) of the rows.
weights_by <- function(labels, m) {
  if (is.null(labels)) return(matrix(1 / m, 1, m))
  groups <- sort(unique(as.character(labels)), method = "radix")
  t(vapply(groups, function(g) (labels == g) / sum(labels == g), numeric(m)))
}

hows <- list(
  difference = list(g = function(hi, lo) hi - lo, hi = function(hi, lo) 1 + 0 * hi, lo = function(hi, lo) -1 + 0 * lo),
  ratio = list(g = function(hi, lo) hi / lo, hi = function(hi, lo) 1 / lo, lo = function(hi, lo) -hi / lo^2),
  lnratio = list(g = function(hi, lo) log(hi / lo), hi = function(hi, lo) 1 / hi, lo = function(hi, lo) -1 / lo),
  oddsratio = list(g = function(hi, lo) hi / (1 - hi) / (lo / (1 - lo)),
                   hi = function(hi, lo) (1 - lo) / lo / (1 - hi)^2,
                   lo = function(hi, lo) -hi / (1 - hi) / lo^2))

# A function of theta with its Jacobian (K, d), and the influences of the rows on the averages alone.
comparison <- function(model, variable, values, how = "difference", by = NULL, data = model$frame) {
  pair <- if (is.list(values)) values else as.list(values)
  hi <- model$rows(with_value(data, variable, pair[[2]])); lo <- model$rows(with_value(data, variable, pair[[1]]))
  W <- weights_by(if (is.null(by)) NULL else data[[by]], nrow(data)); how <- hows[[how]]
  means <- function(t) list(hi = drop(W %*% hi$value(t)), lo = drop(W %*% lo$value(t)))
  list(value = function(t) with(means(t), how$g(hi, lo)),
       slope = function(t) { m <- means(t); how$hi(m$hi, m$lo) * W %*% hi$slope(t) + how$lo(m$hi, m$lo) * W %*% lo$slope(t) },
       sampling = function(t) {
         m <- means(t)
         t((W > 0) * W * (how$hi(m$hi, m$lo) * outer(-m$hi, hi$value(t), "+") + how$lo(m$hi, m$lo) * outer(-m$lo, lo$value(t), "+")))
       })
}
average <- function(rows, W) list(
  value = function(t) drop(W %*% rows$value(t)), slope = function(t) W %*% rows$slope(t),
  sampling = function(t) t(W * outer(-drop(W %*% rows$value(t)), rows$value(t), "+")))
prediction <- function(model, by = NULL, data = model$frame)
  average(model$rows(data), weights_by(if (is.null(by)) NULL else data[[by]], nrow(data)))
each <- function(model, data) average(model$rows(data), diag(nrow(data)))
slope_of <- function(model, variable, by = NULL, data = model$frame)
  average(model$slopes(data, variable), weights_by(if (is.null(by)) NULL else data[[by]], nrow(data)))

# The answer: `ask` and `options` are Python; `kind` says which covariance of theta.
answer <- function(model, ask, question, kind = "model", options = "", population = FALSE) {
  t <- model$theta; J <- question$slope(t)
  size <- max(abs(J)); same(2 + J / size, 2 + numDeriv::jacobian(question$value, t) / size, 1e-7)
  V <- J %*% model$covariance[[kind]] %*% t(J)
  if (population) {   # row i moves theta by A^-1 s_i, and the average by its own deviation
    influence <- model$scores %*% model$covariance[["model"]] %*% t(J) + question$sampling(t)
    V <- crossprod(influence)
  }
  list(ask = ask, options = options, value = I(unname(question$value(t))), standard_error = I(unname(sqrt(diag(V)))))
}

case <- function(r, python, note, frame, questions) {
  columns <- lapply(as.list(frame), function(x) if (is.factor(x)) as.character(x) else unname(x))
  list(r = r, python = python, note = note, data = columns, questions = questions)
}

# --- Low birth weight: logit and probit ---------------------------------------------------------------

births <- transform(birthwt, race = factor(race, 1:3, c("white", "black", "other")))[
  c("low", "age", "lwt", "race", "smoke", "ht", "ui", "ftv")]
birth_formula <- low ~ age + lwt + race + smoke + ht + ui
grid <- births[rep(1, 4), ]
grid[] <- list(0, 25, 130, factor("other", levels(births$race)), c(0, 0, 1, 1), c(0, 1, 0, 1), 0, 0)

logit <- local({
  fit <- tight_glm(birth_formula, binomial, births)
  m <- fitted_model(fit, births, "logit", list(model = vcov(fit)), scores = unname(estfun(fit)))
  low_iqr <- as.list(unname(quantile(births$lwt, c(0.25, 0.75))))
  # as R's marginaleffects has it: around the mean (Python's is around each row's own value)
  around <- mean(births$lwt) + c(-1, 1) * sd(births$lwt) / 2
  case("glm(low ~ age + lwt + race + smoke + ht + ui, binomial), MASS::birthwt",
       "smf.logit('low ~ age + lwt + C(race) + smoke + ht + ui', data)", "Canonical link.", births, list(
    effect_of_smoke = answer(m, "average_comparison('smoke')", comparison(m, "smoke", c(0, 1))),
    ratio_of_smoke = answer(m, "average_comparison('smoke', how='ratio')", comparison(m, "smoke", c(0, 1), "ratio")),
    log_ratio_of_smoke = answer(m, "average_comparison('smoke', how='lnratio')", comparison(m, "smoke", c(0, 1), "lnratio")),
    odds_ratio_of_smoke = answer(m, "average_comparison('smoke', how='oddsratio')", comparison(m, "smoke", c(0, 1), "oddsratio")),
    effect_of_smoke_by_race = answer(m, "average_comparison('smoke', by='race')", comparison(m, "smoke", c(0, 1), by = "race")),
    ratio_of_smoke_by_race = answer(m, "average_comparison('smoke', how='ratio', by='race')", comparison(m, "smoke", c(0, 1), "ratio", by = "race")),
    effect_of_black = answer(m, "average_comparison('race', values=('white', 'black'))", comparison(m, "race", c("white", "black"))),
    effect_of_a_deviation_of_lwt = answer(m, "average_comparison('lwt', values='sd')", comparison(m, "lwt", around)),
    effect_of_the_quartiles_of_lwt = answer(m, "average_comparison('lwt', values='iqr')", comparison(m, "lwt", low_iqr)),
    effect_of_the_range_of_lwt = answer(m, "average_comparison('lwt', values='minmax')", comparison(m, "lwt", as.list(range(births$lwt)))),
    slope_of_lwt = answer(m, "average_slope('lwt')", slope_of(m, "lwt")),
    slope_of_lwt_by_smoke = answer(m, "average_slope('lwt', by='smoke')", slope_of(m, "lwt", by = "smoke")),
    prediction = answer(m, "average_prediction()", prediction(m)),
    prediction_by_race = answer(m, "average_prediction(by='race')", prediction(m, by = "race")),
    four_women = answer(m, "predictions(datagrid(data, age=25, lwt=130, race='other', ui=0, smoke=[0, 1], ht=[0, 1]))", each(m, grid)),
    effect_of_smoke_in_the_population = answer(m, "average_comparison('smoke', population=True)",
      comparison(m, "smoke", c(0, 1)), population = TRUE),
    effect_of_smoke_by_race_in_the_population = answer(m, "average_comparison('smoke', by='race', population=True)",
      comparison(m, "smoke", c(0, 1), by = "race"), population = TRUE),
    log_ratio_of_smoke_in_the_population = answer(m, "average_comparison('smoke', how='lnratio', population=True)",
      comparison(m, "smoke", c(0, 1), "lnratio"), population = TRUE)))
})

probit <- local({
  fit <- tight_glm(birth_formula, binomial("probit"), births)
  X <- unname(model.matrix(fit)); q <- 2 * births$low - 1
  mills <- function(t) drop(q * exp(dnorm(X %*% t, log = TRUE) - pnorm(q * (X %*% t), log.p = TRUE)))
  information <- function(t) crossprod(X, X * drop(mills(t) * (mills(t) + X %*% t)))
  theta <- newton(coef(fit), function(t) drop(crossprod(X, mills(t))), information)
  m <- fitted_model(fit, births, "probit", list(model = solve(information(theta))), theta)
  case("glm(low ~ age + lwt + race + smoke + ht + ui, binomial(probit)), MASS::birthwt",
       "smf.probit('low ~ age + lwt + C(race) + smoke + ht + ui', data)",
       "Finished by Newton's method; the covariance inverts the observed information, as Stata's and statsmodels' probit do.", births, list(
    effect_of_smoke = answer(m, "average_comparison('smoke')", comparison(m, "smoke", c(0, 1))),
    slope_of_lwt = answer(m, "average_slope('lwt')", slope_of(m, "lwt")),
    odds_ratio_of_smoke_by_ht = answer(m, "average_comparison('smoke', how='oddsratio', by='ht')", comparison(m, "smoke", c(0, 1), "oddsratio", by = "ht"))))
})

# --- Counts with an offset ------------------------------------------------------------------------------

poisson_claims <- local({
  frame <- transform(Insurance, Group = as.character(Group), Age = as.character(Age), District = as.character(District))
  frame$logHolders <- log(frame$Holders)
  frame <- transform(frame, Group = factor(Group), Age = factor(Age), District = factor(District))
  fit <- tight_glm(Claims ~ District + Group + Age + offset(logHolders), poisson, frame)
  m <- fitted_model(fit, frame, "log", list(model = vcov(fit), hc0 = sandwich(fit)))
  case("glm(Claims ~ District + Group + Age + offset(log(Holders)), poisson), MASS::Insurance",
       "smf.glm('Claims ~ C(District) + C(Group) + C(Age)', data, family=sm.families.Poisson(), offset=data['logHolders'])",
       "Factors with treatment contrasts, levels in alphabetical order; the offset stays that of the row.", frame, list(
    effect_of_age = answer(m, "average_comparison('Age', values=('<25', '>35'))", comparison(m, "Age", c("<25", ">35"))),
    ratio_of_age = answer(m, "average_comparison('Age', values=('<25', '>35'), how='ratio')", comparison(m, "Age", c("<25", ">35"), "ratio")),
    effect_of_age_by_district = answer(m, "average_comparison('Age', values=('<25', '>35'), by='District')",
      comparison(m, "Age", c("<25", ">35"), by = "District")),
    effect_of_age_robust = answer(m, "average_comparison('Age', values=('<25', '>35'))", comparison(m, "Age", c("<25", ">35")), "hc0", "robust=True"),
    claims_by_group = answer(m, "average_prediction(by='Group')", prediction(m, by = "Group"))))
})

# --- Least squares with an interaction and a spline -------------------------------------------------------

cars <- data.frame(mpg = mtcars$mpg, wt = mtcars$wt, hp = mtcars$hp, am = mtcars$am, cyl = mtcars$cyl, carb = mtcars$carb)

spline <- local({
  fit <- lm(mpg ~ am * hp + bs(wt, df = 4), cars)
  m <- fitted_model(fit, cars, "identity", list(model = vcov(fit), hc3 = vcovHC(fit, "HC3")))
  # bs() ends at the range of the data, and continues as its last polynomial beyond: as predict() does, with a warning.
  quartiles <- as.list(unname(quantile(cars$wt, c(0.25, 0.75))))
  case("lm(mpg ~ am * hp + bs(wt, df = 4)), datasets::mtcars", "smf.ols('mpg ~ am * hp + bs(wt, df=4)', data)",
       "splines::bs and patsy's bs have the same knots.", cars, list(
    effect_of_am = answer(m, "average_comparison('am')", comparison(m, "am", c(0, 1))),
    effect_of_am_hc3 = answer(m, "average_comparison('am')", comparison(m, "am", c(0, 1)), "hc3", "robust='HC3'"),
    slope_of_hp_by_am = answer(m, "average_slope('hp', by='am')", slope_of(m, "hp", by = "am")),
    slope_of_hp_by_am_hc3 = answer(m, "average_slope('hp', by='am')", slope_of(m, "hp", by = "am"), "hc3", "robust='HC3'"),
    slope_of_wt_in_the_middle = answer(m, "average_slope('wt', data=data[(data['wt'] > 2) & (data['wt'] < 5)])",
      slope_of(m, "wt", data = subset(cars, wt > 2 & wt < 5))),
    effect_of_the_quartiles_of_wt = answer(m, "average_comparison('wt', values='iqr')", comparison(m, "wt", quartiles)),
    effect_of_two_to_four_tons = answer(m, "average_comparison('wt', values=(2, 4), by='cyl')", comparison(m, "wt", c(2, 4), by = "cyl"))))
})

# --- Gamma with a log link ----------------------------------------------------------------------------------

gamma_clotting <- local({
  u <- c(5, 10, 15, 20, 30, 40, 60, 80, 100)
  frame <- data.frame(time = c(118, 58, 42, 35, 27, 25, 21, 19, 18, 69, 35, 26, 21, 18, 16, 13, 12, 12),
                      u = rep(u, 2), lot = rep(0:1, each = 9))
  fit <- tight_glm(time ~ log(u) * lot, Gamma("log"), frame)
  m <- fitted_model(fit, frame, "log", list(model = vcov(fit)))
  case("glm(time ~ log(u) * lot, Gamma(log)), clotting times (McCullagh and Nelder)",
       "smf.glm('time ~ np.log(u) * lot', data, family=sm.families.Gamma(sm.families.links.Log()))",
       "Expected information and Pearson's dispersion, as in R and in statsmodels after IRLS.", frame, list(
    effect_of_lot = answer(m, "average_comparison('lot')", comparison(m, "lot", c(0, 1))),
    ratio_of_lot = answer(m, "average_comparison('lot', how='ratio')", comparison(m, "lot", c(0, 1), "ratio")),
    slope_of_u = answer(m, "average_slope('u')", slope_of(m, "u")),
    slope_of_u_by_lot = answer(m, "average_slope('u', by='lot')", slope_of(m, "u", by = "lot"))))
})

# --- Clusters -----------------------------------------------------------------------------------------------

bacteria_clusters <- local({
  frame <- transform(bacteria, present = +(y == "y"), trt = factor(as.character(trt)))[c("present", "trt", "week", "ID")]
  frame$ID <- as.integer(frame$ID)
  fit <- tight_glm(present ~ trt * week, binomial, frame)
  V <- vcovCL(fit, frame$ID, type = "HC0", cadjust = FALSE)
  m <- fitted_model(fit, frame, "logit", list(model = vcov(fit), cluster = V))
  case("glm(present ~ trt * week, binomial), MASS::bacteria, vcovCL(type = HC0, cadjust = FALSE) by patient",
       "smf.glm('present ~ C(trt) * week', data, family=sm.families.Binomial())", "Canonical link.", frame, list(
    effect_of_drug = answer(m, "average_comparison('trt', values=('placebo', 'drug'))", comparison(m, "trt", c("placebo", "drug")), "cluster", "clusters=data['ID']"),
    odds_ratio_of_drug = answer(m, "average_comparison('trt', values=('placebo', 'drug'), how='oddsratio')",
      comparison(m, "trt", c("placebo", "drug"), "oddsratio"), "cluster", "clusters=data['ID']"),
    slope_of_week_by_treatment = answer(m, "average_slope('week', by='trt')", slope_of(m, "week", by = "trt"), "cluster", "clusters=data['ID']")))
})

# --- Several outcomes: softmax and an ordered logit ------------------------------------------------------------

# Probabilities of one outcome and their gradients by the complex step, for models by Newton's method.
several <- function(frame, theta, V, probability) list(
  frame = frame, theta = theta, covariance = list(model = V),
  of = function(outcome) list(frame = frame, theta = theta, covariance = list(model = V), rows = function(f) list(
    value = function(t) Re(probability(t, f, outcome)),
    slope = function(t) vapply(seq_along(t), function(j) {
      moved <- as.complex(t); moved[j] <- moved[j] + 1e-30i
      Im(probability(moved, f, outcome)) / 1e-30
    }, numeric(nrow(f))))))

softmax <- local({
  frame <- transform(births, race = as.character(race))[c("race", "lwt", "smoke", "age")]
  design <- function(f) cbind(1, f$lwt, f$smoke, f$age)
  X <- design(frame); levels <- sort(unique(frame$race)); Y <- outer(frame$race, levels[-1], "==") + 0
  odds <- function(t, X) exp(X %*% matrix(t, 4))
  p <- function(t, X = X) { e <- odds(t, X); e / (1 + rowSums(e)) }
  information <- function(t) {
    P <- p(t, X)
    block <- function(a, b) crossprod(X, X * (P[, a] * ((a == b) - P[, b])))
    rbind(cbind(block(1, 1), block(1, 2)), cbind(block(2, 1), block(2, 2)))
  }
  theta <- newton(rep(0, 8), function(t) as.vector(crossprod(X, Y - p(t, X))), information)
  fit <- nnet::multinom(race ~ lwt + smoke + age, transform(frame, race = factor(race)), trace = FALSE, reltol = 1e-14, maxit = 1000)
  same(theta, as.vector(t(coef(fit))), 1e-4)
  probability <- function(t, f, outcome) {
    e <- odds(t, design(f)); all <- 1 + rowSums(e)
    if (outcome == levels[1]) 1 / all else e[, match(outcome, levels) - 1] / all
  }
  m <- several(frame, theta, solve(information(theta)), probability)
  ask <- function(outcome) answer(m$of(outcome), sprintf("average_comparison('smoke', outcome='%s')", outcome), comparison(m$of(outcome), "smoke", c(0, 1)))
  case("nnet::multinom(race ~ lwt + smoke + age), MASS::birthwt", "sm.MNLogit(data['race'], sm.add_constant(data[['lwt', 'smoke', 'age']]))",
       "Base class `black`, the first in the alphabet; finished by Newton's method.", frame, list(
    effect_on_black = ask("black"), effect_on_other = ask("other"), effect_on_white = ask("white"),
    ratio_for_other = answer(m$of("other"), "average_comparison('smoke', how='ratio', outcome='other')", comparison(m$of("other"), "smoke", c(0, 1), "ratio")),
    probability_of_other_by_smoke = answer(m$of("other"), "average_prediction(by='smoke', outcome='other')", prediction(m$of("other"), by = "smoke"))))
})

ordered <- local({
  frame <- transform(births, visits = pmin(ftv, 2))[c("visits", "age", "smoke", "lwt")]
  design <- function(f) cbind(f$age, f$smoke, f$lwt)
  X <- design(frame); y <- frame$visits; X10 <- X; X10[, 3] <- X[, 3] / 100
  # theta = (beta, first cut, log of the step to the second), as statsmodels' OrderedModel has it
  cuts <- function(t) c(t[4], t[4] + exp(t[5]))
  probability <- function(t, f, outcome) {
    eta <- drop(design(f) %*% t[1:3]); cut <- cuts(t)
    upper <- if (outcome == 2) 1 else expit(cut[outcome + 1] - eta)
    lower <- if (outcome == 0) 0 else expit(cut[outcome] - eta)
    upper - lower
  }
  term <- function(t) { P <- cbind(probability(t, frame, 0), probability(t, frame, 1), probability(t, frame, 2)); log(P[cbind(seq_along(y), y + 1)]) }
  score <- function(t) vapply(1:5, function(j) { s <- as.complex(t); s[j] <- s[j] + 1e-30i; sum(Im(term(s)) / 1e-30) }, 0)
  information <- function(t) { H <- -numDeriv::jacobian(score, t); (H + t(H)) / 2 }
  fit <- polr(factor(y) ~ X10, Hess = TRUE, control = list(reltol = 1e-15))
  start <- c(coef(fit)[1:2], coef(fit)[3] / 100, fit$zeta[1], log(diff(fit$zeta)))
  theta <- unname(newton(start, score, information))
  same(theta, start, 1e-3)
  m <- several(frame, theta, solve(information(theta)), probability)
  ask <- function(k, call, question) answer(m$of(k), sprintf("%s, outcome=%d)", call, k), question(m$of(k)))
  smoke <- function(m) comparison(m, "smoke", c(0, 1))
  case("MASS::polr(factor(pmin(ftv, 2)) ~ age + smoke + lwt), MASS::birthwt",
       "OrderedModel(data['visits'], data[['age', 'smoke', 'lwt']], distr='logit')",
       "Finished by Newton's method. theta is (beta, first cut, log of the step to the second).", frame, list(
    effect_on_none = ask(0, "average_comparison('smoke'", smoke),
    effect_on_one = ask(1, "average_comparison('smoke'", smoke),
    effect_on_more = ask(2, "average_comparison('smoke'", smoke),
    effect_of_age_on_more = ask(2, "average_comparison('age', values=(20, 30)", function(m) comparison(m, "age", c(20, 30)))))
})

write_golden("questions.json", list(
  logit_birthwt = logit, probit_birthwt = probit, poisson_insurance = poisson_claims, spline_mtcars = spline,
  gamma_clotting = gamma_clotting, clusters_bacteria = bacteria_clusters, softmax_birthwt = softmax, ordered_birthwt = ordered),
  c("MASS", "sandwich", "nnet", "numDeriv"))
