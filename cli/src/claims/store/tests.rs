use super::*;

fn place(options: Options, variables: &[(&str, &str)]) -> Result<Place, Error> {
    options.place(|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

fn table(table: &str, endpoint: Option<&str>) -> Place {
    Place::Table {
        table: table.to_owned(),
        endpoint: endpoint.map(str::to_owned),
    }
}

#[test]
fn options_come_before_variables_and_a_table_before_a_file() {
    let given = Options {
        data: Some(PathBuf::from("/given")),
        ..Options::default()
    };
    let variables = [
        (TABLE_VARIABLE, "t"),
        (DATA_VARIABLE, "/data"),
        ("XDG_STATE_HOME", "/state"),
        ("HOME", "/home/ada"),
    ];
    let file = |folder: &str| Place::File(PathBuf::from(folder));
    assert_eq!(place(given, &variables).unwrap(), file("/given"));
    let places = [
        table("t", None),
        file("/data"),
        file("/state/firstclaim"),
        file("/home/ada/.local/state/firstclaim"),
    ];
    for (at, expected) in places.into_iter().enumerate() {
        let found = place(Options::default(), &variables[at..]).unwrap();
        assert_eq!(found, expected);
    }
    let error = place(Options::default(), &[]).unwrap_err();
    assert_eq!(error.exit_code(), 64);
}

#[test]
fn what_is_pasted_leads_to_the_same_store() {
    let variables = [
        (TABLE_VARIABLE, "from-there"),
        (ENDPOINT_VARIABLE, "http://127.0.0.1:9/"),
    ];
    let some = |text: &str| Some(text.to_owned());
    for (table, endpoint, data, expected) in [
        (None, None, None, ""),
        (some("-t"), None, None, " --table=-t"),
        (None, some("http://x:8"), None, " --endpoint=http://x:8"),
        (
            some("t t"),
            some("http://x:8"),
            None,
            " --table='t t' --endpoint=http://x:8",
        ),
        (None, None, some("/a b"), " --data='/a b'"),
    ] {
        let options = Options {
            table,
            endpoint,
            data: data.map(PathBuf::from),
            ..Options::default()
        };
        let found = place(options.clone(), &variables).unwrap();
        assert_eq!(options.pasted(&found), expected);
    }
}

#[test]
fn an_endpoint_alone_means_the_usual_table() {
    let options = Options {
        endpoint: Some("http://127.0.0.1:8000".to_owned()),
        ..Options::default()
    };
    let found = place(options, &[("XDG_STATE_HOME", "/state")]).unwrap();
    assert_eq!(found, table(TABLE, Some("http://127.0.0.1:8000")));
    let error = place(Options::default(), &[(ENDPOINT_VARIABLE, "localhost")]).unwrap_err();
    assert_eq!(error.exit_code(), 64);
}

#[test]
fn an_endpoint_has_one_spelling() {
    for (given, expected) in [
        ("HTTP://LocalHost:8000/", "http://localhost:8000"),
        ("https://db.example.com:443", "https://db.example.com"),
        ("http://127.0.0.1:80/", "http://127.0.0.1"),
        (
            "https://db.example.com/Path/",
            "https://db.example.com/Path",
        ),
    ] {
        assert_eq!(normalised(given).unwrap(), expected);
    }
}

#[test]
fn relative_and_empty_variables_are_no_places() {
    let variables = [
        (TABLE_VARIABLE, ""),
        ("XDG_STATE_HOME", "state"),
        ("HOME", "/home/ada"),
    ];
    let found = place(Options::default(), &variables).unwrap();
    let expected = PathBuf::from("/home/ada/.local/state/firstclaim");
    assert_eq!(found, Place::File(expected));
}

#[test]
fn the_variables_lead_to_the_same_place() {
    for place in [
        table("t", Some("http://127.0.0.1:8000")),
        table("t", None),
        Place::File(PathBuf::from("/data")),
    ] {
        let variables = place.variables();
        let again = Options::default().place(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.and_then(|(_, value)| value.clone())
        });
        assert_eq!(again.unwrap(), place);
    }
}
