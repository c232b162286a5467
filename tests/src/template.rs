//! The deployment's template, read as CloudFormation reads it: parameters filled in, conditions
//! decided, functions resolved.
//!
//! A resource stands for its `Ref` (`"QueueName"` for `!Ref QueueName`), and `"Name.Attribute"` for
//! an attribute of it, so that what belongs together can be compared by name.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};
use serde_yaml_ng::Value as Yaml;

/// Values of parameters by name.
pub type Parameters = BTreeMap<String, String>;

/// The template as it stands in the repository.
#[derive(Clone, Debug)]
pub struct Template {
    document: Value,
}

/// The template with values for its parameters.
#[derive(Clone, Debug)]
pub struct Stack {
    document: Value,
    parameters: Parameters,
}

impl Template {
    /// Reads `infra/template.yaml`.
    ///
    /// # Errors
    ///
    /// It is missing, or no YAML.
    pub fn load() -> anyhow::Result<Self> {
        let path = root().join("infra/template.yaml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let document: Yaml = serde_yaml_ng::from_str(&text)?;
        Ok(Self {
            document: untagged(document)?,
        })
    }

    /// The names of the parameters, with what is declared of each.
    ///
    /// # Errors
    ///
    /// The template has none.
    pub fn parameters(&self) -> anyhow::Result<&Map<String, Value>> {
        let parameters = self.document["Parameters"].as_object();
        parameters.context("no parameters")
    }

    /// The stack that these parameters make; the others have their defaults.
    ///
    /// # Errors
    ///
    /// A parameter is unknown, missing, or breaks a rule.
    pub fn stack(&self, given: &[(&str, &str)]) -> anyhow::Result<Stack> {
        let mut parameters = Parameters::new();
        for (name, declared) in self.parameters()? {
            let given = given.iter().find(|(known, _)| known == name);
            let value = match (given, &declared["Default"]) {
                (Some((_, value)), _) => (*value).to_owned(),
                (None, Value::Null) => bail!("{name} has no default and no value"),
                (None, default) => text(default),
            };
            let allowed = declared["AllowedValues"].as_array();
            if allowed.is_some_and(|allowed| !allowed.iter().any(|one| text(one) == value)) {
                bail!("{name}: {value:?} is not allowed");
            }
            parameters.insert(name.clone(), value);
        }
        for (name, _) in given {
            if !parameters.contains_key(*name) {
                bail!("there is no parameter {name}");
            }
        }
        let stack = Stack {
            document: self.document.clone(),
            parameters,
        };
        stack.check_rules()?;
        Ok(stack)
    }
}

impl Stack {
    /// A parameter's value.
    ///
    /// # Errors
    ///
    /// There is no such parameter.
    pub fn parameter(&self, name: &str) -> anyhow::Result<&str> {
        let value = self.parameters.get(name);
        Ok(value.with_context(|| name.to_owned())?)
    }

    /// The resources of a type that the conditions let exist, by name, resolved.
    ///
    /// # Errors
    ///
    /// A function of the template is not known here.
    pub fn resources(&self, of_type: &str) -> anyhow::Result<BTreeMap<String, Value>> {
        let mut found = BTreeMap::new();
        let resources = self.document["Resources"].as_object();
        for (name, resource) in resources.context("no resources")? {
            let condition = resource["Condition"].as_str();
            let exists = condition.map_or(Ok(true), |name| self.condition(name))?;
            if exists && resource["Type"] == of_type {
                let resolved = self.resolve(resource)?;
                found.insert(name.clone(), resolved.unwrap_or_default());
            }
        }
        Ok(found)
    }

    /// A resource's properties, resolved.
    ///
    /// # Errors
    ///
    /// There is no such resource.
    pub fn properties(&self, name: &str) -> anyhow::Result<Value> {
        let properties = &self.document["Resources"][name]["Properties"];
        let resolved = self.resolve(properties)?.filter(Value::is_object);
        resolved.with_context(|| format!("no resource {name}"))
    }

    /// What a function finds in its environment: what holds for all functions, and its own.
    ///
    /// # Errors
    ///
    /// There is no such function.
    pub fn environment(&self, function: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let globals = &self.document["Globals"]["Function"]["Environment"]["Variables"];
        let own = &self.properties(function)?["Environment"]["Variables"];
        let mut variables = BTreeMap::new();
        for from in [&self.resolve(globals)?.unwrap_or_default(), own] {
            for (name, value) in from.as_object().context("no variables")? {
                variables.insert(name.clone(), text(value));
            }
        }
        Ok(variables)
    }

    fn check_rules(&self) -> anyhow::Result<()> {
        let rules = self.document["Rules"].as_object();
        for (name, rule) in rules.into_iter().flatten() {
            let applies = &rule["RuleCondition"];
            if !applies.is_null() && !self.decide(applies)? {
                continue;
            }
            for assertion in rule["Assertions"].as_array().into_iter().flatten() {
                if !self.decide(&assertion["Assert"])? {
                    bail!("{name}: {}", text(&assertion["AssertDescription"]));
                }
            }
        }
        Ok(())
    }

    fn condition(&self, name: &str) -> anyhow::Result<bool> {
        let condition = &self.document["Conditions"][name];
        self.decide(condition).with_context(|| name.to_owned())
    }

    fn decide(&self, condition: &Value) -> anyhow::Result<bool> {
        let Some((function, argument)) = call(condition) else {
            bail!("{condition} is no condition");
        };
        let all = || argument.as_array().context("no list of conditions");
        match function {
            "Condition" => self.condition(&text(argument)),
            "Fn::Equals" => {
                let sides = all()?.iter().map(|side| self.resolve(side));
                let sides = sides.collect::<anyhow::Result<Vec<_>>>()?;
                Ok(sides
                    .iter()
                    .flatten()
                    .map(text)
                    .collect::<std::collections::BTreeSet<_>>()
                    .len()
                    == 1)
            }
            "Fn::Not" => Ok(!self.decide(&all()?[0])?),
            "Fn::And" => all()?
                .iter()
                .try_fold(true, |so_far, one| Ok(so_far & self.decide(one)?)),
            "Fn::Or" => all()?
                .iter()
                .try_fold(false, |so_far, one| Ok(so_far | self.decide(one)?)),
            other => bail!("{other} is not known in a condition"),
        }
    }

    /// The value without its functions; `None` for `AWS::NoValue`.
    fn resolve(&self, value: &Value) -> anyhow::Result<Option<Value>> {
        if let Some((function, argument)) = call(value) {
            return self.apply(function, argument);
        }
        Ok(Some(match value {
            Value::Object(fields) => {
                let mut resolved = Map::new();
                for (name, field) in fields {
                    if let Some(field) = self.resolve(field)? {
                        resolved.insert(name.clone(), field);
                    }
                }
                Value::Object(resolved)
            }
            Value::Array(items) => {
                let items = items.iter().map(|item| self.resolve(item));
                let items = items.collect::<anyhow::Result<Vec<_>>>()?;
                Value::Array(items.into_iter().flatten().collect())
            }
            plain => plain.clone(),
        }))
    }

    fn apply(&self, function: &str, argument: &Value) -> anyhow::Result<Option<Value>> {
        let arguments = argument.as_array().map(Vec::as_slice).unwrap_or_default();
        match (function, arguments) {
            ("Ref", _) if argument == "AWS::NoValue" => Ok(None),
            ("Ref", _) => Ok(Some(json!(self.named(&text(argument))))),
            ("Fn::GetAtt", [name, attribute]) => {
                Ok(Some(json!(format!("{}.{}", text(name), text(attribute)))))
            }
            ("Fn::GetAtt", _) => Ok(Some(json!(text(argument)))),
            ("Fn::If", [condition, yes, no]) => {
                let branch = if self.condition(&text(condition))? {
                    yes
                } else {
                    no
                };
                self.resolve(branch)
            }
            ("Fn::FindInMap", [map, first, second]) => {
                let first = self.resolve(first)?.unwrap_or_default();
                let found = &self.document["Mappings"][text(map)][text(&first)][text(second)];
                self.resolve(found)
            }
            ("Fn::Sub", [pattern, variables]) => {
                let variables = self.resolve(variables)?.unwrap_or_default();
                Ok(Some(json!(self.substituted(&text(pattern), &variables)?)))
            }
            ("Fn::Sub", _) => Ok(Some(json!(
                self.substituted(&text(argument), &Value::Null)?
            ))),
            _ => bail!("{function} {argument} is not known here"),
        }
    }

    fn substituted(&self, pattern: &str, variables: &Value) -> anyhow::Result<String> {
        let mut parts = pattern.split("${");
        let mut whole = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = part.split_once('}').context("an open ${")?;
            match &variables[name] {
                Value::Null => whole.push_str(&self.named(name)),
                given => whole.push_str(&text(given)),
            }
            whole.push_str(rest);
        }
        Ok(whole)
    }

    fn named(&self, name: &str) -> String {
        let parameter = self.parameters.get(name);
        parameter.cloned().unwrap_or_else(|| name.to_owned())
    }
}

/// The repository's root.
#[must_use]
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// A value as the text that a function's environment or a name has.
#[must_use]
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `{"Fn::Name": argument}`, `{"Ref": name}` and `{"Condition": name}`.
fn call(value: &Value) -> Option<(&str, &Value)> {
    let fields = value.as_object().filter(|fields| fields.len() == 1)?;
    let (name, argument) = fields.iter().next()?;
    let known = name.starts_with("Fn::") || name == "Ref" || name == "Condition";
    known.then_some((name.as_str(), argument))
}

/// The document as JSON: `!Name x` becomes `{"Fn::Name": x}`.
fn untagged(value: Yaml) -> anyhow::Result<Value> {
    Ok(match value {
        Yaml::Tagged(tagged) => {
            let tag = tagged.tag.to_string();
            let name = tag.trim_start_matches('!');
            let argument = untagged(tagged.value)?;
            let argument = match (
                name,
                argument.as_str().and_then(|text| text.split_once('.')),
            ) {
                ("GetAtt", Some((resource, attribute))) => json!([resource, attribute]),
                _ => argument,
            };
            match name {
                "Ref" | "Condition" => json!({name: argument}),
                _ => json!({format!("Fn::{name}"): argument}),
            }
        }
        Yaml::Mapping(fields) => {
            let mut object = Map::new();
            for (name, field) in fields {
                let name = untagged(name)?;
                object.insert(text(&name), untagged(field)?);
            }
            Value::Object(object)
        }
        Yaml::Sequence(items) => {
            let items = items.into_iter().map(untagged);
            Value::Array(items.collect::<anyhow::Result<_>>()?)
        }
        plain => serde_json::to_value(plain)?,
    })
}
