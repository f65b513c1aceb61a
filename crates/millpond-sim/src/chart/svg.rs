//! The chart as SVG: rates, backlog and age, one panel each over the same time axis.
//!
//! Owns the layout and the colours. Must never write a file. The colours are Okabe and Ito's, which people with
//! any kind of colour vision can tell apart; areas and line widths keep them apart in grey print too.

use super::{Sample, Series, tick_step, time_unit};
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{
    AreaSeries, BLACK, Cartesian2d, Color, DrawingArea, IntoDrawingArea, LineSeries, PathElement, RGBColor,
    Rectangle, SVGBackend, SeriesLabelPosition, Text, WHITE,
};
use std::fmt::Display;

const WIDTH: u32 = 960;
const HEIGHT: u32 = 760;
const TITLE_HEIGHT: u32 = 52;
const ARRIVALS: RGBColor = RGBColor(230, 159, 0);
const COMPLETIONS: RGBColor = RGBColor(0, 84, 147);
const BACKLOG: RGBColor = RGBColor(0, 130, 95);
const AGE: RGBColor = RGBColor(190, 75, 0);
const SPIKE: RGBColor = RGBColor(120, 120, 120);
const GRID: RGBColor = RGBColor(225, 225, 225);
const FONT: &str = "Helvetica, Arial, sans-serif";

/// The chart could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error(
    "the chart could not be drawn: {0}; this is a defect of the drawing, the figures of the run are not affected"
)]
pub struct ChartError(String);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Panel<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws `series` as a complete SVG document, 960 × 760.
pub fn svg(series: &Series) -> Result<String, ChartError> {
    let mut document = String::new();
    {
        let root = SVGBackend::with_string(&mut document, (WIDTH, HEIGHT)).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let (head, body) = root.split_vertically(TITLE_HEIGHT);
        head.draw(&Text::new(series.title.clone(), (24, 18), (FONT, 22))).map_err(failed)?;
        let panels = body.split_evenly((3, 1));
        rates(&panels[0], series)?;
        let backlog = Measure { name: "waiting", unit: "messages", colour: BACKLOG, last: false };
        single(&panels[1], series, &backlog, |sample| sample.backlog)?;
        let age = Measure { name: "age of the oldest waiting", unit: "seconds", colour: AGE, last: true };
        single(&panels[2], series, &age, |sample| sample.oldest_age_seconds)?;
        root.present().map_err(failed)?;
    }
    Ok(document)
}

struct Measure {
    name: &'static str,
    unit: &'static str,
    colour: RGBColor,
    last: bool,
}

fn rates(area: &Area<'_>, series: &Series) -> Result<(), ChartError> {
    let highest = series.highest(|sample| sample.arrivals_per_second.max(sample.completions_per_second));
    let mut chart = panel(area, series, "per second", highest, false)?;
    let unit = time_unit(series.end_seconds()).0;
    let points = |read: fn(&Sample) -> f64| {
        series.samples.iter().map(move |sample| (sample.at_seconds / unit, read(sample)))
    };
    chart
        .draw_series(
            AreaSeries::new(points(|sample| sample.arrivals_per_second), 0.0, ARRIVALS.mix(0.35))
                .border_style(ARRIVALS.stroke_width(1)),
        )
        .map_err(failed)?
        .label("arrivals")
        .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 18, y + 5)], ARRIVALS.mix(0.6).filled()));
    chart
        .draw_series(LineSeries::new(
            points(|sample| sample.completions_per_second),
            COMPLETIONS.stroke_width(3),
        ))
        .map_err(failed)?
        .label("completions")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], COMPLETIONS.stroke_width(3)));
    legend(&mut chart)
}

fn single(
    area: &Area<'_>,
    series: &Series,
    measure: &Measure,
    read: fn(&Sample) -> f64,
) -> Result<(), ChartError> {
    let highest = series.highest(read);
    let mut chart = panel(area, series, measure.unit, highest, measure.last)?;
    let highest = (highest * 10.0).round() / 10.0;
    let unit = time_unit(series.end_seconds()).0;
    let points = series.samples.iter().map(|sample| (sample.at_seconds / unit, read(sample)));
    let colour = measure.colour;
    chart
        .draw_series(AreaSeries::new(points, 0.0, colour.mix(0.25)).border_style(colour.stroke_width(2)))
        .map_err(failed)?
        .label(format!("{}, highest {} {}", measure.name, crate::text::number(highest), measure.unit))
        .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 18, y + 5)], colour.mix(0.6).filled()));
    legend(&mut chart)
}

/// A panel with its axes, its grid and the spike as a grey band behind everything.
fn panel<'a>(
    area: &Area<'a>,
    series: &Series,
    y_unit: &str,
    highest: f64,
    last: bool,
) -> Result<Panel<'a>, ChartError> {
    let (unit_seconds, unit) = time_unit(series.end_seconds());
    let x_end = series.end_seconds() / unit_seconds;
    let y_step = tick_step(highest.max(1.0), 4.0);
    let y_end = ((highest.max(1.0) * 1.05) / y_step).ceil() * y_step;
    let mut chart = ChartBuilder::on(area)
        .margin_left(16)
        .margin_right(28)
        .margin_top(8)
        .x_label_area_size(if last { 48 } else { 28 })
        .y_label_area_size(84)
        .build_cartesian_2d(0.0..x_end, 0.0..y_end)
        .map_err(failed)?;
    let band = [series.spike_start_seconds / unit_seconds, series.spike_end_seconds / unit_seconds];
    if band[1] > band[0] {
        let band = Rectangle::new([(band[0], 0.0), (band[1], y_end)], SPIKE.mix(0.13).filled());
        chart.draw_series(std::iter::once(band)).map_err(failed)?;
    }
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(WHITE.mix(0.0))
        .bold_line_style(GRID)
        .axis_style(BLACK)
        .x_labels(10)
        .y_labels(5)
        .y_desc(y_unit)
        .label_style((FONT, 15))
        .axis_desc_style((FONT, 15))
        .x_label_formatter(&|value| crate::text::number(*value))
        .y_label_formatter(&|value| crate::text::number(*value));
    if last {
        mesh.x_desc(format!("time ({unit}); the spike is shaded"));
    }
    mesh.draw().map_err(failed)?;
    Ok(chart)
}

fn legend(chart: &mut Panel<'_>) -> Result<(), ChartError> {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .label_font((FONT, 15))
        .draw()
        .map_err(failed)
}

fn failed(error: impl Display) -> ChartError {
    ChartError(error.to_string())
}
