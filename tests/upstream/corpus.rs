//! Requests of `.http` files, which many editors know: `###` and a title, the
//! request line, headers, an empty line, the body.
//!
//! Three headers are ours and not sent: `until: 201` repeats the request until that is its
//! status, `save: name=/pointer` keeps a part of the answer for `{{name}}` in later requests,
//! and `show: /pointer` keeps a part of the answer only.

#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) title: String,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
    pub(super) until: Option<u16>,
    pub(super) save: Vec<(String, String)>,
    pub(super) show: Option<String>,
}

pub(super) fn parse(text: &str) -> Vec<Exchange> {
    format!("\n{text}").split("\n### ").skip(1).map(exchange).collect()
}

fn exchange(text: &str) -> Exchange {
    let (head, body) = text.split_once("\n\n").unwrap_or((text.trim_end(), ""));
    let mut lines = head.lines();
    let title = lines.next().unwrap_or_default().to_owned();
    let (method, path) = lines
        .next()
        .and_then(|line| line.split_once(' '))
        .unwrap_or_else(|| panic!("{title}: there is no request line"));
    let mut exchange = Exchange {
        title,
        method: method.to_owned(),
        path: path.to_owned(),
        headers: Vec::new(),
        body: body.trim_end().to_owned(),
        until: None,
        save: Vec::new(),
        show: None,
    };
    for line in lines {
        exchange.header(line);
    }
    let has_type = exchange.headers.iter().any(|(name, _)| name == "content-type");
    if !exchange.body.is_empty() && !has_type {
        exchange.headers.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    exchange
}

impl Exchange {
    fn header(&mut self, line: &str) {
        let title = &self.title;
        let (name, value) =
            line.split_once(": ").unwrap_or_else(|| panic!("{title}: no header: {line}"));
        match name {
            "until" => self.until = Some(value.parse().unwrap()),
            "show" => self.show = Some(value.to_owned()),
            "save" => {
                let (name, pointer) = value.split_once('=').unwrap();
                self.save.push((name.to_owned(), pointer.to_owned()));
            }
            _ => self.headers.push((name.to_ascii_lowercase(), value.to_owned())),
        }
    }
}
