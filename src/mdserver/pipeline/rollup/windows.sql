-- The twelve windows of each node and indicator, which end with the newest minute, hour, day or
-- month: a row for each. Means are joined by their distances from the mean of the window, so the
-- deviation is right also of counters that are high and grow slowly (Chan, Golub and LeVeque 1979).
create or replace temporary view stats_windows as
with
  lengths as (
    select '1min' as window_name, 60 as seconds, 60 as unit
    union all select '5min', 300, 60
    union all select '15min', 900, 60
    union all select '1h', 3600, 3600
    union all select '5h', 18000, 3600
    union all select '15h', 54000, 3600
    union all select '1d', 86400, 86400
    union all select '5d', 432000, 86400
    union all select '15d', 1296000, 86400
    union all select '1month', 2592000, 2592000
    union all select '5months', 12960000, 2592000
    union all select '15months', 38880000, 2592000
  ),
  summaries as (
    select 60 as unit, period, node, indicator, n, mean, m2, max, min from stats_minute
    union all
    select 3600, period, node, indicator, n, mean, m2, max, min from stats_hour
    union all
    select 86400, period, node, indicator, n, mean, m2, max, min from stats_day
    union all
    select 2592000, period, node, indicator, n, mean, m2, max, min from stats_month
  ),
  newest as (select unit, max(period) as period from summaries group by unit),
  chosen as (
    select lengths.window_name, summaries.*
    from lengths
    join newest on newest.unit = lengths.unit
    join summaries on summaries.unit = lengths.unit
      and summaries.period > newest.period - interval '1' second * lengths.seconds
  ),
  means as (
    select window_name, node, indicator, sum(n * mean) / sum(n) as average
    from chosen
    group by window_name, node, indicator
  )
select
  chosen.window_name, chosen.node, chosen.indicator, sum(n) as n, max(max) as max, min(min) as min,
  max(average) + sum(n * (mean - average)) / sum(n) as avg,
  sqrt(greatest(
    sum(m2 + n * (mean - average) * (mean - average))
      - pow(sum(n * (mean - average)), 2) / sum(n),
    0
  ) / sum(n)) as stddev
from chosen
join means on means.window_name = chosen.window_name
  and means.node = chosen.node and means.indicator = chosen.indicator
group by chosen.window_name, chosen.node, chosen.indicator
