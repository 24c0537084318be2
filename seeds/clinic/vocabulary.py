"""The words that generate.py draws from: names, streets, insurers, reasons, notes, messages.

All people, companies and numbers are invented; telephone numbers are 555 numbers, addresses are example.org.
"""

from __future__ import annotations

CLINICS = (
    (1, "Lincoln Square", "4718 N Western Ave", "Chicago", "(773) 555-0110"),
    (2, "Oak Park", "1021 Lake St", "Oak Park", "(708) 555-0120"),
    (3, "Hyde Park", "5330 S Harper Ave", "Chicago", "(773) 555-0130"),
    (4, "Evanston", "1600 Maple Ave", "Evanston", "(847) 555-0140"),
    (5, "Naperville", "210 E Ogden Ave", "Naperville", "(630) 555-0150"),
)
CITIES = (
    ("Chicago", "Chicago", "Lincolnwood"),
    ("Oak Park", "Forest Park", "Berwyn"),
    ("Chicago", "Chicago", "Calumet City"),
    ("Evanston", "Skokie", "Wilmette"),
    ("Naperville", "Lisle", "Aurora"),
)
STREETS = (
    "Maple St", "Oak Ave", "Birch Ln", "Prairie Ave", "Lake St", "Cedar Ct", "Division St", "Halsted St",
    "Ridge Rd", "Washington Blvd", "Juniper Way", "Elm St", "Harlem Ave", "Damen Ave", "Willow Dr",
    "Clark St",
)  # fmt: skip

PROVIDER_NAMES = (
    "Amara Okafor", "Daniel Reyes", "Helen Whitfield", "Rohan Mehta", "Claire Dubois", "Samuel Adeyemi",
    "Ingrid Larsen", "Peter Kowalski", "Mei-Ling Chow", "Thomas Brennan", "Fatima Rahman",
    "George Papadakis", "Laura Benedetti", "Victor Salazar", "Naomi Goldberg", "Andre Baptiste",
    "Susan Hargrove", "Kenji Watanabe", "Olivia Sandoval", "Marcus Thornton", "Priya Raman",
    "Erik Lindqvist", "Joanna Zielinski", "Hassan Karimi", "Bridget O'Malley", "Leon Fischer",
    "Teresa Villanueva", "Calvin Brooks", "Anita Deshmukh", "Robert Novak", "Yuki Nakamura",
    "Grace Achebe", "Walter Simmons", "Elena Petrova", "Dominic Ferraro", "Hannah Weiss",
    "Jamal Whitaker", "Sofia Marchetti", "Nathan Holloway", "Ruth Abernathy",
)  # fmt: skip
EXTRA = (
    ("cardiology", "dermatology", "behavioral health"),
    ("orthopedics", "women's health", "behavioral health"),
    ("cardiology", "orthopedics", "women's health"),
    ("dermatology", "women's health", "behavioral health"),
    ("cardiology", "dermatology", "orthopedics"),
)
REFERRED = ("cardiology", "dermatology", "orthopedics", "women's health", "behavioral health")

FIRST_NAMES = {
    "female": (
        "Abigail", "Aisha", "Alice", "Amelia", "Ana", "Angela", "Anita", "Beatriz", "Bernice", "Bianca",
        "Camila", "Carla", "Chidinma", "Clara", "Daniela", "Deborah", "Denise", "Diana", "Dorothy", "Elaine",
        "Eleanor", "Esther", "Eva", "Farah", "Fiona", "Florence", "Gabriela", "Gloria", "Greta", "Hannah",
        "Hazel", "Imani", "Irene", "Isabel", "Jasmine", "Joan", "Josephine", "Joyce", "Juanita", "Katarzyna",
        "Keisha", "Lakshmi", "Latoya", "Leila", "Lillian", "Lucia", "Magdalena", "Margaret", "Mariana",
        "Martha", "Mercedes", "Miriam", "Monique", "Nadia", "Nina", "Noor", "Odette", "Paula", "Phyllis",
        "Rachel", "Renata", "Rosa", "Ruth", "Sabrina", "Shanice", "Simone", "Stella", "Sunita", "Sylvia",
        "Tamara", "Theresa", "Valentina", "Vera", "Vivian", "Wanda", "Xiomara", "Yasmin", "Yolanda", "Zofia",
    ),
    "male": (
        "Aaron", "Adrian", "Ahmed", "Albert", "Alejandro", "Anton", "Arjun", "Benjamin", "Bernard", "Boris",
        "Brandon", "Carlos", "Cedric", "Chen", "Clarence", "Curtis", "Damian", "Darnell", "Diego", "Dmitri",
        "Earl", "Edgar", "Edwin", "Elijah", "Emmanuel", "Ernest", "Felix", "Francis", "Gerald", "Gustavo",
        "Harold", "Hector", "Hugo", "Ibrahim", "Isaac", "Ivan", "Jerome", "Joaquin", "Jonas", "Julian",
        "Kamal", "Kenneth", "Kwame", "Lamar", "Leonard", "Lorenzo", "Luis", "Malik", "Manuel", "Marvin",
        "Mateo", "Miguel", "Milan", "Nikhil", "Noah", "Omar", "Oscar", "Pablo", "Patrick", "Quentin",
        "Rafael", "Ramon", "Raymond", "Roland", "Rufus", "Sanjay", "Sergio", "Stanley", "Tariq", "Terrence",
        "Theodore", "Tobias", "Tomasz", "Ulrich", "Vernon", "Victor", "Wendell", "Xavier", "Zachary",
    ),
}  # fmt: skip
LAST_NAMES = (
    "Abbott", "Acosta", "Ahmed", "Alvarez", "Andersen", "Armstrong", "Bailey", "Banerjee", "Barlow", "Becker",
    "Bell", "Bennett", "Blackwood", "Boateng", "Bonner", "Brandt", "Burgess", "Byrne", "Calloway", "Cardenas",
    "Castillo", "Chaudhry", "Choi", "Coleman", "Contreras", "Crawford", "Cruz", "Dalton", "Davila", "Delgado",
    "Desai", "Dixon", "Donnelly", "Dudek", "Eastman", "Ellison", "Espinoza", "Farrell", "Ferreira", "Finch",
    "Fitzgerald", "Flores", "Foster", "Franklin", "Gallagher", "Garrison", "Gomez", "Gorski", "Grant",
    "Greene", "Gutierrez", "Haddad", "Hale", "Hanson", "Hernandez", "Hoffman", "Holt", "Huang", "Ibarra",
    "Iverson", "Jablonski", "Jackson", "Jansen", "Jimenez", "Kaplan", "Kaur", "Keller", "Khan", "Kim",
    "Kowalczyk", "Kumar", "Lambert", "Langley", "Larkin", "Lopez", "Lowe", "Maddox", "Malone", "Marin",
    "McBride", "McKinney", "Mendoza", "Mercer", "Miller", "Mitchell", "Monroe", "Morales", "Mwangi", "Nash",
    "Nguyen", "Nolan", "Novotny", "O'Brien", "O'Connor", "Obi", "Olsen", "Ortega", "Osei", "Owens", "Pacheco",
    "Park", "Patel", "Pearson", "Pham", "Pierce", "Polanco", "Porter", "Quinn", "Ramirez", "Randall", "Rao",
    "Reed", "Rinaldi", "Rivera", "Robbins", "Romero", "Rosen", "Rossi", "Salgado", "Sanders", "Santiago",
    "Schroeder", "Shah", "Sharp", "Silva", "Sinclair", "Skinner", "Sokolov", "Stanton", "Steele", "Suarez",
    "Sullivan", "Takahashi", "Tate", "Thompson", "Torres", "Tran", "Underwood", "Valdez", "Vance", "Vargas",
    "Velasquez", "Wagner", "Walsh", "Washington", "Webb", "Whitaker", "Wilkins", "Winters", "Wong", "Wright",
    "Yamada", "Yates", "Young", "Zamora", "Zhang", "Zimmerman",
)  # fmt: skip

INSURERS = (
    ("Lakeshore Health Plan", "LHP", "(800) 555-0161"),
    ("Blue Prairie Mutual", "BPM", "(800) 555-0162"),
    ("Midwest Guardian", "MWG", "(800) 555-0163"),
    ("Evergreen Benefit", "EVB", "(800) 555-0164"),
    ("Cornerstone Care", "CSC", "(800) 555-0165"),
    ("Union Hall Health", "UHH", "(800) 555-0166"),
    ("Silver Birch Advantage", "SBA", "(800) 555-0167"),
    ("State Medical Assistance", "SMA", "(800) 555-0168"),
)

# code -> label, minutes, fee in cents
KINDS = {
    "new_patient_office": ("First visit of a new patient", 40, 24500),
    "follow_up": ("Follow-up", 10, 8200),
    "follow_up_long": ("Follow-up, extended", 20, 12800),
    "annual_physical": ("Annual physical", 30, 19900),
    "sick_visit": ("Sick visit", 20, 13400),
    "procedure": ("Office procedure", 60, 41000),
}
RETURN_KINDS = ("follow_up", "follow_up", "follow_up_long", "follow_up_long", "annual_physical", "sick_visit")

REASONS = {
    "family medicine": (
        "blood pressure",
        "persistent cough",
        "diabetes check",
        "back pain",
        "fatigue",
        "refill",
    ),
    "internal medicine": ("cholesterol results", "thyroid check", "shortness of breath", "diabetes check"),
    "pediatrics": ("well-child visit", "ear infection", "school form", "vaccination", "asthma check"),
    "cardiology": ("palpitations", "chest tightness", "echo results", "blood pressure"),
    "dermatology": ("mole check", "eczema", "acne", "rash on the forearm"),
    "orthopedics": ("knee pain", "shoulder injury", "wrist fracture follow-up", "hip stiffness"),
    "women's health": ("annual exam", "contraception", "menopause symptoms", "ultrasound results"),
    "behavioral health": ("sleep problems", "anxiety", "medication check", "grief"),
}
FINDINGS = {
    "family medicine": (
        "BP 138/86, weight stable, lungs clear.",
        "Afebrile, throat mildly red, no nodes.",
        "A1c 7.1, feet without lesions.",
        "Straight leg raise negative, gait normal.",
    ),
    "internal medicine": (
        "LDL down to 112, tolerating the statin.",
        "TSH within range, dose unchanged.",
        "Lungs clear, oxygen saturation 97 %.",
        "BP 144/90, second reading 136/84.",
    ),
    "pediatrics": (
        "Growth on the 60th percentile, development on track.",
        "Right ear drum red, hearing unaffected.",
        "No wheeze today, peak flow in the green zone.",
    ),
    "cardiology": (
        "ECG sinus rhythm, no ectopy.",
        "Ejection fraction 58 %, valves normal.",
        "Home readings average 132/80.",
    ),
    "dermatology": (
        "Lesion symmetric, 4 mm, unchanged since the last photograph.",
        "Dry plaques on both elbows, no infection.",
        "Comedones on the forehead, improving.",
    ),
    "orthopedics": (
        "Full extension, pain at end of flexion.",
        "X-ray: union complete, hardware in place.",
        "Rotator cuff strength 4 of 5.",
    ),
    "women's health": (
        "Exam unremarkable.",
        "Ultrasound without findings.",
        "Vitals normal, no new complaints.",
    ),
    "behavioral health": ("Affect appropriate.",),
}
SENSITIVE_NOTES = (
    "Discussed mood and safety at home; patient asks that family not be told.",
    "Reports drinking most evenings; wants help, not ready to set a date.",
    "PHQ-9 score 14, no plan or intent; medication adjusted.",
    "Result discussed in private; partner notification offered.",
)
PLANS = (
    "Recheck in three months.",
    "Continue current treatment.",
    "Labs ordered, call with results.",
    "Return if worse.",
    "Referral placed.",
    "Exercises shown, hand-out given.",
)
EXCHANGES = (
    (
        "sms",
        "Reminder",
        (("out", "{first}, a reminder of your visit with Dr. {doctor}. Reply C to confirm."),),
    ),
    (
        "sms",
        "Reminder",
        (
            ("out", "{first}, a reminder of your visit with Dr. {doctor}. Reply C to confirm."),
            ("in", "C"),
        ),
    ),
    (
        "portal",
        "Question before the visit",
        (
            ("in", "Do I need to fast before I see Dr. {doctor}?"),
            ("out", "No, {first}, eat as usual. Please bring your list of medicines."),
        ),
    ),
    (
        "portal",
        "Parking",
        (
            ("in", "Is there parking at the clinic?"),
            ("out", "Yes, behind the building. The first two hours are free."),
        ),
    ),
    (
        "portal",
        "Results",
        (("out", "{first}, your results are in. Dr. {doctor} has left a comment for you."),),
    ),
)
TAGS = ("interpreter", "wheelchair", "forms", "fasting", "bring records", "late arrival")
AWAY = ("vacation", "conference", "jury duty", "training")
THREADED = ("message_threads", "messages")
