//! `CASES.md` says which tests show which case, and `DESIGN.md` which show what follows from a
//! failure. That it is true is a test too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The crate's folder, and the one of the workspace.
fn folders() -> (PathBuf, PathBuf) {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let workspace = own.parent().unwrap().to_owned();
    (own, workspace)
}

/// The Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found
}

/// The names in a text that stand behind `mark` and begin with the number of a case.
fn numbered(text: &str, mark: &str) -> BTreeSet<String> {
    let names = text.split(mark).skip(1).map(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        &rest[..end.unwrap_or(rest.len())]
    });
    // A number alone is no test's name.
    let numbered = names.filter(|name| {
        let numbers = numbers(name).len();
        numbers > 0 && numbers < name.split('_').count()
    });
    numbered.map(str::to_owned).collect()
}

/// The cases that a test's name begins with: `p20_a18_a_late…` is about P20 and A18.
fn numbers(name: &str) -> Vec<String> {
    let parts = name.split('_').map_while(|part| {
        let digits = part.strip_prefix(['p', 'a', 'n'])?;
        let number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        number.then(|| part.to_uppercase())
    });
    parts.collect()
}

/// The numbered tests of this suite, as `module::name`.
fn own_tests() -> BTreeSet<String> {
    let (own, _) = folders();
    let mut tests = BTreeSet::new();
    for path in sources(&own.join("tests/cases")) {
        let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let names = numbered(&text, "fn ");
        tests.extend(names.into_iter().map(|name| format!("{module}::{name}")));
    }
    tests
}

/// A row's cells: case, what must hold, tests, parts.
fn rows() -> Vec<[String; 4]> {
    let (own, _) = folders();
    let text = fs::read_to_string(own.join("CASES.md")).unwrap();
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<_> = line
            .strip_prefix("| ")?
            .split(" | ")
            .map(str::to_owned)
            .collect();
        let cells: [String; 4] = cells.try_into().ok()?;
        cells[0][1..].parse::<u32>().is_ok().then_some(cells)
    });
    rows.collect()
}

#[test]
fn every_case_has_its_tests() {
    let tests = own_tests();
    let rows = rows();
    assert!(rows.len() > 140, "{}", rows.len());
    let mut shown: BTreeMap<&str, BTreeSet<&String>> = BTreeMap::new();
    for [case, _, library, parts] in &rows {
        let named = library.split('`').skip(1).step_by(2);
        let shown = shown.entry(case).or_default();
        for name in named.filter(|name| name.contains("::")) {
            let found: Vec<_> = match name.strip_suffix('…') {
                Some(start) => tests
                    .iter()
                    .filter(|test| test.starts_with(start))
                    .collect(),
                None => tests.get(name).into_iter().collect(),
            };
            assert!(!found.is_empty(), "{case}: there is no test {name}");
            shown.extend(found);
        }
        assert!(
            library != "—" || !parts.starts_with('—'),
            "{case}: neither test nor reason"
        );
    }
    for test in &tests {
        let (_, name) = test.split_once("::").unwrap();
        for number in numbers(name) {
            let shown = shown.get(number.as_str());
            let shown = shown.is_some_and(|shown| shown.contains(test));
            assert!(shown, "{test} is not in the row of {number}");
        }
    }
}

#[test]
fn the_design_names_tests_that_exist() {
    let (own, _) = folders();
    let design = fs::read_to_string(own.join("DESIGN.md")).unwrap();
    let mut found = 0;
    // The integration suite's tests are marked, and lie elsewhere.
    let named = design.replace("integration `", "`integration ");
    for name in named.split('`').skip(1).step_by(2) {
        let Some((module, test)) = name.split_once("::") else {
            continue;
        };
        let Ok(text) = fs::read_to_string(own.join(format!("tests/cases/{module}.rs"))) else {
            continue;
        };
        assert!(
            text.contains(&format!("fn {test}()")),
            "there is no test {name}"
        );
        found += 1;
    }
    assert!(found > 20, "{found}");
}

#[test]
fn every_part_has_tests_of_the_cases_that_name_it() {
    let (_, workspace) = folders();
    let folder = |part: &str| match part {
        "webhook" => workspace.join("functions/webhook"),
        "queue" => workspace.join("functions/queue"),
        "cli" => workspace.join("cli"),
        "integration" => workspace.join("tests"),
        other => panic!("{other} is no part"),
    };
    let rows = rows();
    for part in ["webhook", "queue", "cli", "integration"] {
        let texts = sources(&folder(part)).into_iter().map(fs::read_to_string);
        let texts: Vec<_> = texts.map(Result::unwrap).collect();
        // The integration suite names its tests in a table, as texts.
        let names = texts.iter().flat_map(|text| {
            numbered(text, "fn ")
                .into_iter()
                .chain(numbered(text, "\""))
        });
        let tested: BTreeSet<String> = names.flat_map(|name| numbers(&name)).collect();
        for [case, _, _, parts] in &rows {
            let named = parts.trim_end_matches(" |").split(", ");
            let named = named.into_iter().any(|one| one == part);
            let has = tested.contains(case);
            assert!(has || !named, "{part} has no test of {case}");
            assert!(named || !has, "the row of {case} does not name {part}");
        }
    }
}
