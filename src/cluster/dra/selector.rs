//! Device selectors: CEL expressions with the extensions of Kubernetes.
//!
//! A selector sees `device.driver`, `device.attributes` and `device.capacity`; the latter two are maps by domain and
//! name. An unknown domain is an empty map, so a test for a name in it is not an error.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cel::common::ast::{ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue};
use cel::common::types::{CelBool, CelInt, CelList, CelMap, CelMapKey, CelString, DYN_TYPE, STRING_TYPE};
use cel::common::value::{CowVal, Val};
use cel::parser::{Macro, MacroExprHelper};
use cel::{Context, DeclarationError, Env, ExecutionError, Program, Value};

use super::values::{Domains, Quantity, Version, add_ordered};
use crate::cluster::reduce::claims::{Attribute, Device};

/// The CEL environment of selectors.
#[derive(Clone)]
pub struct Language(Arc<Env>);

impl std::fmt::Debug for Language {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Language")
    }
}

/// A compiled selector.
#[derive(Debug)]
pub struct Selector(Program);

impl Default for Language {
    fn default() -> Self {
        Self(Arc::new(environment().expect("each name is declared once")))
    }
}

impl Language {
    /// Compiles a selector.
    ///
    /// # Errors
    /// The syntax or type error.
    pub fn read(&self, expression: &str) -> Result<Selector, String> {
        self.0.compile(expression).map(Selector).map_err(|error| error.to_string())
    }

    /// Converts a device of a driver into the form that selectors see.
    ///
    /// # Errors
    /// The attribute or capacity that cannot be converted. Such a device matches no selector.
    pub fn show(&self, driver: &str, device: &Device) -> Result<Shown<'static>, String> {
        let mut attributes = BTreeMap::new();
        for (name, attribute) in &device.attributes {
            put(&mut attributes, driver, name, value(attribute).map_err(|error| format!("{name}: {error}"))?);
        }
        let mut capacity = BTreeMap::new();
        for (name, text) in &device.capacity {
            let quantity = Quantity::read(text).map_err(|error| format!("{name}: {error}"))?;
            put(&mut capacity, driver, name, Box::new(quantity));
        }
        let fields: [(&str, Box<dyn Val>); 4] = [
            ("driver", Box::new(CelString::from(driver.to_owned()))),
            ("allowMultipleAllocations", Box::new(CelBool::from(device.multiple))),
            ("attributes", Box::new(Domains::of(attributes))),
            ("capacity", Box::new(Domains::of(capacity))),
        ];
        let fields = fields.map(|(name, value)| (key(name), value));
        let mut context = Context::with_env(Arc::clone(&self.0));
        context.add_variable_as_val("device", Box::new(CelMap::from(HashMap::from(fields))));
        Ok(Shown(context))
    }
}

/// A device in the form that selectors see.
pub struct Shown<'v>(Context<'v, 'v>);

impl Shown<'_> {
    /// Whether a selector selects the device.
    ///
    /// # Errors
    /// Why the expression cannot be evaluated.
    pub fn matches(&self, selector: &Selector) -> Result<bool, String> {
        match selector.0.execute(&self.0) {
            Ok(Value::Bool(matches)) => Ok(matches),
            Ok(other) => Err(format!("the expression returns {other:?}, not true or false")),
            Err(error) => Err(error.to_string()),
        }
    }
}

type Names = HashMap<CelMapKey<'static>, Box<dyn Val>>;

/// Stores a value under the domain in its name, or else under the driver's.
fn put(domains: &mut BTreeMap<String, Names>, driver: &str, name: &str, value: Box<dyn Val>) {
    let (domain, name) = name.split_once('/').unwrap_or((driver, name));
    domains.entry(domain.to_owned()).or_default().insert(key(name), value);
}

fn key(name: &str) -> CelMapKey<'static> {
    CelMapKey::String(CelString::from(name.to_owned()))
}

fn value(attribute: &Attribute) -> Result<Box<dyn Val>, String> {
    fn list<T>(
        values: &[T],
        one: impl Fn(&T) -> Result<Box<dyn Val>, String>,
    ) -> Result<Box<dyn Val>, String> {
        let values: Vec<Box<dyn Val>> = values.iter().map(one).collect::<Result<_, _>>()?;
        Ok(Box::new(CelList::from(values)))
    }
    let text =
        |text: &String| -> Result<Box<dyn Val>, String> { Ok(Box::new(CelString::from(text.clone()))) };
    let version = |text: &String| -> Result<Box<dyn Val>, String> { Ok(Box::new(Version::read(text)?)) };
    match attribute {
        Attribute::Bool(value) => Ok(Box::new(CelBool::from(*value))),
        Attribute::Int(value) => Ok(Box::new(CelInt::from(*value))),
        Attribute::Text(value) => text(value),
        Attribute::Version(value) => version(value),
        Attribute::Bools(values) => list(values, |value| Ok(Box::new(CelBool::from(*value)))),
        Attribute::Ints(values) => list(values, |value| Ok(Box::new(CelInt::from(*value)))),
        Attribute::Texts(values) => list(values, text),
        Attribute::Versions(values) => list(values, version),
        Attribute::Unknown => Err("unknown type of value".to_owned()),
    }
}

/// The standard language with quantities, versions, `includes` and `cel.bind`.
fn environment() -> Result<Env, DeclarationError> {
    let mut env = Env::stdlib();
    add_ordered::<Quantity>(&mut env, "quantity")?;
    add_ordered::<Version>(&mut env, "semver")?;
    let parts: [(&str, cel::common::functions::Function); 3] = [
        ("major", |args| part(&args, |version| version.major)),
        ("minor", |args| part(&args, |version| version.minor)),
        ("patch", |args| part(&args, |version| version.patch)),
    ];
    for (name, read) in parts {
        let id = format!("semver_{name}");
        env.add_member_overload(name, &id, <Version as Val>::cel_type().to_owned(), Vec::new(), read)?;
    }
    env.add_member_overload(
        "includes",
        "dra_includes",
        DYN_TYPE.to_owned(),
        vec![DYN_TYPE.to_owned()],
        includes,
    )?;
    env.add_overload("isQuantity", "is_quantity", vec![STRING_TYPE.to_owned()], |args| {
        Ok(CowVal::owned(CelBool::from(
            super::values::text(&args).is_some_and(|text| Quantity::read(text).is_ok()),
        )))
    })?;
    env.add_overload("isSemver", "is_semver", vec![STRING_TYPE.to_owned()], |args| {
        Ok(CowVal::owned(CelBool::from(
            super::values::text(&args).is_some_and(|text| Version::read(text).is_ok()),
        )))
    })?;
    env.add_macro(Macro::receiver("bind", 3, bind))?;
    Ok(env)
}

fn part<'b, 'v>(
    args: &[CowVal<'b, 'v>],
    read: fn(&semver::Version) -> u64,
) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let version = args.first().and_then(|arg| arg.downcast_ref::<Version>());
    let part = version.and_then(|version| i64::try_from(read(&version.0)).ok());
    let part = part.ok_or_else(|| ExecutionError::function_error("semver", "out of range"))?;
    Ok(CowVal::owned(CelInt::from(part)))
}

/// Whether the first argument equals the second, or is a list that contains it.
fn includes<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [within, sought] = args.as_slice() else {
        return Err(ExecutionError::missing_argument_or_target());
    };
    let found = match within.as_container().filter(|_| within.as_iterable().is_some()) {
        Some(list) => list.contains(sought.as_ref())?,
        None => within.equals(sought.as_ref()),
    };
    Ok(CowVal::owned(CelBool::from(found)))
}

/// `cel.bind(name, value, expression)`: a comprehension over an empty list, with `name` as its accumulator.
fn bind(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
) -> Result<Option<IdedExpr>, cel::ParseError> {
    let on_cel =
        target.as_ref().is_some_and(|target| matches!(&target.expr, Expr::Ident(name) if name == "cel"));
    let Some(Expr::Ident(name)) = args.first().filter(|_| on_cel).map(|name| name.expr.clone()) else {
        return Ok(None);
    };
    let (Some(result), Some(init)) = (args.pop(), args.pop()) else { return Ok(None) };
    let nothing = helper.next_expr(Expr::List(ListExpr::new(Vec::new())));
    let never = helper.next_expr(Expr::Literal(LiteralValue::Boolean(CelBool::from(false))));
    let same = helper.next_expr(Expr::Ident(name.clone()));
    Ok(Some(helper.next_expr(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: nothing,
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name,
        accu_init: init,
        loop_cond: never,
        loop_step: same,
        result,
    })))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> Device {
        let attributes = [
            ("type", Attribute::Text("gpu".into())),
            ("index", Attribute::Int(3)),
            ("healthy", Attribute::Bool(true)),
            ("driverVersion", Attribute::Version("570.86.0".into())),
            ("links", Attribute::Texts(vec!["a".into(), "b".into()])),
            ("resource.kubernetes.io/pcieRoot", Attribute::Text("pci0".into())),
        ];
        Device {
            attributes: attributes.map(|(name, attribute)| (name.into(), attribute)).into(),
            capacity: [("memory".into(), "80Gi".to_owned())].into(),
            multiple: false,
            takes: BTreeMap::new(),
        }
    }

    fn matches(expression: &str) -> Result<bool, String> {
        let language = Language::default();
        let selector = language.read(expression)?;
        language.show("gpu.example.com", &device())?.matches(&selector)
    }

    #[test]
    fn selectors_evaluate_as_in_kube_scheduler() {
        for (expression, expected) in [
            ("device.driver == 'gpu.example.com'", true),
            ("device.driver == 'other'", false),
            ("device.attributes['gpu.example.com'].type == 'gpu'", true),
            ("device.attributes['gpu.example.com'].index > 3", false),
            ("device.attributes['gpu.example.com'].healthy", true),
            ("device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0'", true),
            ("'type' in device.attributes['gpu.example.com']", true),
            ("'type' in device.attributes['elsewhere.example.com']", false),
            ("has(device.attributes['elsewhere.example.com'].type)", false),
            ("'elsewhere.example.com' in device.attributes", false),
            ("device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0", true),
            ("device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('80Gi'))", false),
            ("device.capacity['gpu.example.com'].memory == quantity('81920Mi')", true),
            ("device.attributes['gpu.example.com'].driverVersion.isGreaterThan(semver('570.9.0'))", true),
            ("device.attributes['gpu.example.com'].driverVersion.major() == 570", true),
            ("device.attributes['gpu.example.com'].driverVersion.isLessThan(semver('1.0.0'))", false),
            ("device.attributes['gpu.example.com'].links.includes('b')", true),
            ("device.attributes['gpu.example.com'].type.includes('gpu')", true),
            ("device.attributes['gpu.example.com'].type.matches('^g.u$')", true),
            ("cel.bind(it, device.attributes['gpu.example.com'], it.healthy && it.type == 'gpu')", true),
            ("['gpu', 'mig'].exists(kind, kind == device.attributes['gpu.example.com'].type)", true),
            ("device.allowMultipleAllocations", false),
            ("isQuantity('1Gi') && !isSemver('x')", true),
        ] {
            assert_eq!(matches(expression), Ok(expected), "{expression}");
        }
    }

    #[test]
    fn an_expression_that_cannot_be_evaluated_is_an_error() {
        for expression in [
            "device.driver ==",
            "device.attributes['elsewhere.example.com'].type == 'gpu'",
            "device.driver",
            "unheardOf(device.driver)",
            "quantity('many') == quantity('1')",
        ] {
            assert!(matches(expression).is_err(), "{expression}");
        }
        let odd = Device { attributes: [("x".into(), Attribute::Unknown)].into(), ..device() };
        assert!(Language::default().show("d", &odd).is_err());
    }
}
