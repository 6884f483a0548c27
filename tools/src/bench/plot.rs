//! `--plot`: two charts of a [`Report`] in one SVG: how latency is distributed, and how the rate
//! went over time.
//!
//! Latency is drawn over "nines": 99%, 99.9%, 99.99% are equally far apart, because what one
//! waits for is in the tail. Text is left to the viewer's own sans-serif font; no font is read or
//! embedded, and the same report gives the same bytes.

mod axes;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::report::{Direction, JobReport, Report};
use super::units::{count, duration};
use axes::{Decades, Nines};

/// Width and height of the drawing in pixels.
const SIZE: (u32, u32) = (1000, 900);
/// Read, write, trim, sync: colours that are apart for the colour-blind too (Okabe and Ito).
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];
const FONT: &str = "sans-serif";
/// Where in the tail a curve has a point, as steps a nine.
const STEPS_A_NINE: u32 = 20;

/// A drawing that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the plot: {0}")]
pub struct PlotError(String);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The drawing as SVG text.
///
/// # Errors
/// What the drawing library says; none is known to be possible for a drawing in memory.
pub fn svg(report: &Report) -> Result<String, PlotError> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        draw(report, &area).map_err(|error| PlotError(error.to_string()))?;
    }
    Ok(text)
}

fn draw(report: &Report, area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let group = report.group();
    let used: Vec<Direction> =
        Direction::ALL.into_iter().filter(|&d| group.direction(d).requests > 0).collect();
    let below = area.margin(8, 0, 0, 0).titled(&title(report), (FONT, 22))?;
    let (upper, lower) = below.split_vertically((SIZE.1 - 40) / 2);
    latency(&group, &used, &upper)?;
    rate(&group, &used, &lower)
}

/// The job, the options that say most, and what must not be overlooked.
fn title(report: &Report) -> String {
    let mut title = report.job_name.clone();
    for key in ["rw", "bs", "iodepth", "numjobs"] {
        if let Some(value) = report.options.get(key) {
            title.push_str(&format!(" {key}={value}"));
        }
    }
    if report.virtual_time {
        title.push_str(" MODELLED (virtual time)");
    } else if report.modelled {
        title.push_str(" MODELLED");
    }
    if report.interrupted {
        title.push_str(" INTERRUPTED");
    }
    title
}

fn latency(
    group: &JobReport,
    used: &[Direction],
    area: &Area<'_>,
) -> Result<(), Box<dyn std::error::Error>> {
    let latencies = || used.iter().map(|&d| &group.direction(d).latency).filter(|l| !l.is_empty());
    // Each tail is drawn as far as there are requests in it.
    let nines = latencies().map(|l| (l.len() as f64).log10()).fold(1.0, f64::max).min(9.0);
    let slowest = latencies().map(|l| l.max()).max().unwrap_or(1000);
    // Not the minimum: a lone fast one would take room from all others.
    let fastest = latencies().map(|l| l.value_at_quantile(0.01)).min().unwrap_or(100);
    let mut chart = ChartBuilder::on(area)
        .caption("Latency by percentile", (FONT, 17))
        .margin(10)
        .margin_right(30)
        .x_label_area_size(45)
        .y_label_area_size(75)
        .build_cartesian_2d(Nines { end: nines }, Decades::around(fastest, slowest))?;
    chart
        .configure_mesh()
        .x_desc("percentile of requests (%)")
        .y_desc("latency")
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.15))
        .draw()?;
    for &direction in used {
        let latency = &group.direction(direction).latency;
        if latency.is_empty() {
            continue;
        }
        let end = (latency.len() as f64).log10().min(nines);
        let steps = (end * f64::from(STEPS_A_NINE)).ceil() as u32;
        let points = (0..=steps).map(|step| {
            let nines = (f64::from(step) / f64::from(STEPS_A_NINE)).min(end);
            let value = latency.value_at_quantile(1.0 - 10_f64.powf(-nines));
            (nines, value.clamp(fastest, slowest) as f64)
        });
        let style = COLOURS[direction as usize].stroke_width(2);
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(direction.name())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    if !used.is_empty() {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font((FONT, 14))
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()?;
    }
    Ok(())
}

fn rate(
    group: &JobReport,
    used: &[Direction],
    area: &Area<'_>,
) -> Result<(), Box<dyn std::error::Error>> {
    let curves: Vec<_> = used.iter().map(|&d| (d, group.rates(d))).collect();
    let most = curves.iter().flat_map(|(_, steps)| steps).map(|s| s.requests).fold(0.0, f64::max);
    // Virtual runs may last milliseconds.
    let (unit, scale) = match group.runtime_nanos {
        0..10_000_000 => ("us", 1e6),
        10_000_000..10_000_000_000 => ("ms", 1e3),
        _ => ("s", 1.0),
    };
    let end = group.runtime_seconds() * scale;
    // Room above the curves for the legend.
    let top = if most > 0.0 { most * 1.35 } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .caption("Requests a second over time", (FONT, 17))
        .margin(10)
        .margin_right(30)
        .x_label_area_size(45)
        .y_label_area_size(75)
        .build_cartesian_2d(0.0..end.max(1.0), 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc(format!("time since the start ({unit})"))
        .y_desc("IOPS")
        .x_label_formatter(&|x| x.to_string())
        .y_label_formatter(&|y| axes::mark(&count(*y)))
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.15))
        .draw()?;
    for (direction, steps) in &curves {
        let style = COLOURS[*direction as usize].stroke_width(2);
        let points = || steps.iter().map(|step| (step.middle_seconds * scale, step.requests));
        chart
            .draw_series(LineSeries::new(points(), style))?
            .label(direction.name())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
        // A few points, or a single one, are no line.
        if steps.len() <= 30 {
            let colour = COLOURS[*direction as usize];
            chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
        }
    }
    if !curves.is_empty() {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .label_font((FONT, 14))
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn a_plot_has_its_titles_units_and_directions() {
        let text = svg(&sample::mixed()).expect("it is drawn");
        for part in [
            "mixed rw=randrw bs=4k iodepth=32 numjobs=2",
            "Latency by percentile",
            "percentile of requests (%)",
            "99.99",
            "100 us",
            "Requests a second over time",
            "IOPS",
            "time since the start (ms)",
            "read",
            "write",
            "sync",
        ] {
            assert!(text.contains(part), "no {part:?}");
        }
        assert!(!text.contains("trim") && !text.contains("MODELLED") && !text.contains("NaN"));
    }

    #[test]
    fn a_modelled_plot_says_so_and_is_the_same_again() {
        let text = svg(&sample::parity_writes()).expect("it is drawn");
        assert!(text.contains("MODELLED (virtual time) INTERRUPTED"));
        assert_eq!(text, svg(&sample::parity_writes()).expect("it is drawn"));
    }

    #[test]
    fn a_run_with_nothing_or_one_request_can_be_drawn() {
        let mut report = sample::mixed();
        report.jobs.truncate(1);
        let job = &mut report.jobs[0];
        job.series = super::super::report::Series::default();
        for direction in &mut job.directions {
            direction.latency.reset();
            direction.requests = 0;
        }
        assert!(!svg(&report).expect("it is drawn").contains("NaN"));
        let job = &mut report.jobs[0];
        job.directions[1].latency.record(12_345).expect("it resizes");
        job.directions[1].requests = 1;
        job.series.step_nanos = 1_000_000;
        job.series.requests[1] = vec![1];
        job.runtime_nanos = 13_000;
        assert!(!svg(&report).expect("it is drawn").contains("NaN"));
        report.jobs.clear();
        assert!(!svg(&report).expect("it is drawn").contains("NaN"));
    }

    #[test]
    fn samples_are_drawn_for_a_person_to_look_at() {
        let (directory, _guard) = sample::directory();
        for (name, report) in [("mixed", sample::mixed()), ("parity", sample::parity_writes())] {
            let text = svg(&report).expect("it is drawn");
            std::fs::write(directory.join(format!("{name}.svg")), text).expect("it is written");
        }
    }
}
