# BCa intervals of a mean, a correlation and a ratio of means: boot::boot.ci(type = "bca").
# Run in this directory: Rscript bca.R

source("common.R")
suppressMessages(library(boot))

case <- function(model, data, statistic, stored = 999, replicates = 20000, seed = 1) {
  set.seed(seed)
  weighted <- function(rows, w) statistic(rows, w / sum(w))
  out <- boot(data, weighted, R = replicates, stype = "w")
  few <- boot(data, weighted, R = stored, stype = "w")
  # `empinf` differentiates in the weights for stype = "w": the infinitesimal jackknife.
  L <- empinf(out)
  ends <- function(b, type) boot.ci(b, conf = 0.95, type = type)[[if (type == "perc") "percent" else type]][4:5]
  list(model = model, data = as.list(data), value = out$t0, standard_error = sd(out$t),
       acceleration = sum(L^3) / (6 * sum(L^2)^1.5), replicates = replicates,
       bca_95 = ends(out, "bca"), basic_95 = ends(out, "basic"), percentile_95 = ends(out, "perc"),
       few = list(draws = drop(few$t), bca_95 = ends(few, "bca"), basic_95 = ends(few, "basic")))
}

correlation <- function(d, w) {
  x <- d$x - sum(w * d$x); y <- d$y - sum(w * d$y)
  sum(w * x * y) / sqrt(sum(w * x^2) * sum(w * y^2))
}

write_golden("bca.json", list(
  mean = case("mean of hours between failures, boot::aircondit", data.frame(y = aircondit$hours),
              function(d, w) sum(w * d$y)),
  correlation = case("correlation of speed and dist, cars", data.frame(x = cars$speed, y = cars$dist), correlation),
  ratio = case("ratio of mean hp and mean mpg, mtcars", data.frame(x = mtcars$mpg, y = mtcars$hp),
               function(d, w) sum(w * d$y) / sum(w * d$x))
), "boot")
